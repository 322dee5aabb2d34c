// Prints a checksum of the output bits of every kernel on one input, a line each. The test compiles
// it once per instruction set and compares the lines; `make sanitize` runs it under sanitizers.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include "checksum.h"
#include "codec_bits.h"
#include "cross_entropy.h"
#include "dropout.h"
#include "gemm.h"
#include "head_bits.h"
#include "merge_max.h"
#include "norm_bits.h"
#include "roof.h"
#include "rows.h"
#include "spmm.h"
#include "spmm_extreme.h"
#include "walk_order.h"
#include "walk_order_io.h"

namespace {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

constexpr int64_t kRows = 300;
constexpr int64_t kEdges = 3000;

uint64_t next_random() {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return state >> 33;
}

template <typename T>
void print(const char* name, int64_t width, const std::vector<T>& values) {
  uint64_t sum = 14695981039346656037u;
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (std::size_t i = 0; i < values.size() * sizeof(T); ++i) sum = (sum ^ bytes[i]) * 1099511628211u;
  std::printf("%s %zu %ld %016lx\n", name, sizeof(T), static_cast<long>(width),
              static_cast<unsigned long>(sum));
}

// Values of which many are equal, sources with ids, and some rows without edges.
template <typename T>
void merge(int64_t width, const std::vector<int64_t>& id, std::vector<T> value) {
  std::vector<int32_t> source(value.size()), other_source(value.size());
  std::vector<T> other(value.size());
  std::vector<int64_t> received_id(value.size());
  std::vector<int32_t> row(kRows);
  for (int64_t i = 0; i < kRows; ++i) {
    row[i] = static_cast<int32_t>(next_random() % kRows);
    for (int64_t k = i * width; k < (i + 1) * width; ++k) {
      value[k] = static_cast<T>(next_random() % 4);
      other[k] = static_cast<T>(next_random() % 4);
      source[k] = i % 7 == 0 ? -1 : static_cast<int32_t>(next_random() % 100);
      other_source[k] = i % 5 == 0 ? -1 : static_cast<int32_t>(next_random() % 100);
      received_id[k] = static_cast<int64_t>(next_random() % 60);
    }
  }
  const distgnn::Maxima<T> into{value.data(), source.data()};
  const distgnn::FoundMaxima<T> found{other.data(), other_source.data()};
  distgnn::merge_max(into, found, kRows, width, 100, id.data());
  const distgnn::ReceivedMaxima<T> received{row.data(), other.data(), received_id.data(), kRows};
  distgnn::merge_received_max(into, received, width, id.data());
  print("merged", width, value);
  print("merged_source", width, source);
}

template <typename T>
std::vector<T> with_some_nan(std::vector<T> values) {
  for (std::size_t i = 3; i < values.size(); i += 41) {
    values[i] = std::numeric_limits<T>::quiet_NaN();
  }
  return values;
}

// Maxima and minima; leaves the sources of the minima.
template <typename T>
void extremes(const char* name, const distgnn::CsrView& graph, const distgnn::WalkOrderView& walk,
              const std::vector<T>& x, int64_t width, std::vector<int32_t>* source) {
  std::vector<T> out(x.size());
  for (const bool is_max : {true, false}) {
    distgnn::spmm_extreme(graph, walk, x.data(), kRows, width, is_max, out.data(), source->data());
    print(name, width, out);
    print("source", width, *source);
  }
}

template <typename T>
void run(int64_t width) {
  std::vector<int64_t> indptr(kRows + 1), key(kRows), edge(kEdges);
  std::vector<int32_t> indices(kEdges);
  for (int64_t i = 0; i <= kRows; ++i) indptr[i] = i * kEdges / kRows;
  for (auto& source : indices) source = static_cast<int32_t>(next_random() % kRows);
  for (auto& k : key) k = static_cast<int64_t>(next_random() % 50);
  for (int64_t k = 0; k < kEdges; ++k) edge[k] = k;
  std::vector<T> x(kRows * width), weight(kEdges), out(kRows * width);
  for (auto& value : x) value = static_cast<T>(next_random() % 1000) / 7;
  for (auto& value : weight) value = static_cast<T>(next_random() % 1000) / 3;
  const distgnn::CsrView graph{indptr.data(), indices.data(), kRows};

  const distgnn::WalkOrderView no_walk_order;
  const distgnn::SumFactors<T> ones{}, weights{weight.data(), weight.data(), nullptr};
  distgnn::spmm_sum(graph, no_walk_order, ones, x.data(), width, false, out.data());
  print("sum", width, out);
  distgnn::spmm_sum(graph, no_walk_order, weights, x.data(), width, true, out.data());
  print("weighted", width, out);
  std::vector<int32_t> source(out.size());
  const distgnn::WalkOrder made = distgnn::make_walk_order(graph, kRows);
  const distgnn::WalkOrderView walk = distgnn::view_of(made);
  extremes("extreme_or_nan", graph, walk, with_some_nan(x), width, &source);
  extremes("extreme", graph, walk, x, width, &source);
  merge(width, key, x);
  const distgnn::ExtremeGrad<T> grad{x.data(), source.data(), 0, kRows};
  std::vector<T> scratch(distgnn::extreme_scratch(graph, kRows, width));
  distgnn::spmm_extreme_backward(graph, walk, grad, width, false, scratch.data(), out.data());
  print("extreme_backward", width, out);
  distgnn::spmm_sum(graph, walk, weights, x.data(), width, false, out.data());
  print("ordered", width, out);
  const distgnn::SumFactors<T> sources{nullptr, nullptr, weight.data()};
  distgnn::spmm_sum(graph, walk, sources, x.data(), width, false, out.data());
  print("sources", width, out);
  distgnn::scatter_add_rows(x.data(), width, indices.data(), kRows, out.data());
  print("scatter", width, out);
  distgnn::gather_rows(x.data(), width, indices.data(), kRows, out.data());
  print("gather", width, out);
  std::vector<int32_t> falling(kRows);
  for (int64_t k = 0; k < kRows; ++k) falling[k] = static_cast<int32_t>(kRows - 1 - k);
  distgnn::blend_rows(x.data(), width, falling.data(), kRows, T(0.3), out.data());
  print("blend", width, out);
  distgnn::dropout(x.data(), key.data(), kRows, width, 5, 0.3, out.data());
  print("dropout", width, out);
  distgnn::dropout_values(weight.data(), edge.data(), indices.data(), kEdges, 5, 0.3,
                          weight.data());
  print("dropout_values", width, weight);
}

// Rows of T, or of two bytes each.
template <typename T>
distgnn::Stored<T> stored(T* rows) {
  return {rows, nullptr};
}
distgnn::Stored<float> stored(distgnn::Bf16* rows) { return {nullptr, rows}; }

// Products of rows that are stored as X, finished in every way, and their gradients.
template <typename T, typename X>
void run_products(int64_t width) {
  constexpr int64_t kDepth = 21, kManyRows = 2500;
  std::vector<T> wide(kManyRows * kDepth), matrix(kDepth * width), bias(width);
  std::vector<X> x(wide.size()), out(kManyRows * width);
  for (auto& value : wide) value = static_cast<T>(next_random() % 1000) / 7;
  for (std::size_t i = 0; i < wide.size(); ++i) distgnn::store(wide[i], &x[i]);
  for (auto& value : matrix) value = static_cast<T>(next_random() % 1000) / 3 - 166;
  std::vector<int64_t> key(kManyRows);
  for (auto& k : key) k = static_cast<int64_t>(next_random());
  const bool is_paired = sizeof(X) < sizeof(T);
  std::vector<T> panels(distgnn::panels_size<T>(kDepth, width, is_paired));
  distgnn::pack_panels(matrix.data(), kDepth, width, width, 1, is_paired, panels.data());
  distgnn::Product<T> product{};
  product.is_paired = is_paired;
  const distgnn::Stored<const T> rows = stored(x.data()).read();
  product.factors[0] = product.factors[1] = {rows, nullptr, kDepth, panels.data()};
  product.num_factors = 2;
  product.num_rows = kManyRows;
  product.width = width;
  product.out = stored(out.data());
  product.finish = {wide.data(), matrix.data(), true, key.data(),
                    distgnn::make_mask_rule<T>(5, 0.3)};
  std::vector<T> scratch(distgnn::multiply_workspace(product, distgnn::num_threads()));
  distgnn::multiply(product, scratch.data());
  print("multiply", width, out);
  distgnn::Gradient<T> gradient{};
  gradient.factors[0] = {rows, nullptr, kDepth, matrix.data()};
  gradient.num_factors = 1;
  gradient.num_rows = kManyRows;
  gradient.width = width;
  gradient.grad = stored(out.data());
  gradient.activation = gradient.grad.read();
  gradient.scale = 3;
  gradient.bias_gradient = bias.data();
  std::vector<T> workspace(distgnn::gradient_workspace(gradient, distgnn::num_threads()));
  distgnn::multiply_transposed(gradient, workspace.data());
  print("multiply_transposed", width, matrix);
  print("bias", width, bias);
  distgnn::dropout(x.data(), key.data(), kManyRows, kDepth, 5, 0.3, x.data());
  print("dropout", width, x);
}

// Rows stored in two bytes, and the graphs that walk orders cut and set apart: many edges a row,
// and one row with half of all edges.
void run_stored(int64_t width) {
  constexpr int64_t kManyRows = 9000, kDegree = 24;
  std::vector<int64_t> indptr(kManyRows + 1);
  for (int64_t i = 1; i <= kManyRows; ++i) {
    indptr[i] = indptr[i - 1] + (i == 5 ? kManyRows * kDegree : kDegree);
  }
  std::vector<int32_t> indices(indptr[kManyRows]);
  for (int64_t row = 0; row < kManyRows; ++row) {
    const int64_t degree = indptr[row + 1] - indptr[row];
    for (int64_t k = 0; k < degree; ++k) {
      indices[indptr[row] + k] = static_cast<int32_t>(k * kManyRows / degree);
    }
  }
  const distgnn::CsrView graph{indptr.data(), indices.data(), kManyRows};
  const distgnn::WalkOrder made = distgnn::make_walk_order(graph, kManyRows);
  const distgnn::WalkOrderView walk = distgnn::view_of(made);
  const distgnn::SumFactors<float> ones{};
  std::vector<float> x(kManyRows * width), out(kManyRows * width), roof(kManyRows * 16);
  std::vector<distgnn::Bf16> half(x.size()), half_out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(next_random() % 1000) / 7;
    distgnn::store(x[i], &half[i]);
  }
  distgnn::spmm_sum(graph, walk, ones, x.data(), width, false, out.data());
  print("hub", width, out);
  const auto num_segments = static_cast<int64_t>(made.row.size());
  const auto num_tasks = static_cast<int64_t>(made.task.size()) - 1;
  const distgnn::Layout kept{made.row.data(),  made.begin.data(), num_segments, made.task.data(),
                             num_tasks,        made.num_long,     false,        0,
                             0};
  distgnn::WalkOrder restored;
  if (distgnn::restore_walk_order(graph, kept, &restored) != nullptr) std::printf("not restored\n");
  distgnn::spmm_sum(graph, distgnn::view_of(restored), ones, x.data(), width, false, out.data());
  print("restored", width, out);
  distgnn::spmm_sum(graph, walk, ones, half.data(), width, false, out.data());
  print("half", width, out);
  distgnn::spmm_sum(graph, walk, ones, half.data(), width, false, half_out.data());
  print("half_out", width, half_out);
  distgnn::scatter_add_rows(half.data(), width, indices.data(), kManyRows, out.data());
  print("half_scatter", width, out);
  distgnn::gather_rows(half.data(), width, indices.data(), kManyRows, half_out.data());
  print("half_gather", width, half_out);
  if (width >= 16) distgnn::gather_roof(graph, walk, x.data(), width, roof.data());
}

// The loss of classes, with its gradient and alone.
template <typename T>
void run_loss(int64_t width) {
  std::vector<T> scores(kRows * width), loss(kRows), gradient(scores.size());
  std::vector<int64_t> label(kRows);
  for (auto& score : scores) score = static_cast<T>(next_random() % 1000) / 70 - 6;
  for (auto& value : label) value = static_cast<int64_t>(next_random() % width);
  distgnn::cross_entropy(scores.data(), label.data(), kRows, width, loss.data(), gradient.data());
  print("loss", width, loss);
  print("loss_gradient", width, gradient);
  distgnn::cross_entropy<T>(scores.data(), label.data(), kRows, width, loss.data(), nullptr);
  print("loss_alone", width, loss);
}

// Bytes in part streams, in streams and a rest, and in words and a rest.
void run_checksums() {
  std::vector<std::uint8_t> data(101401);
  for (auto& byte : data) byte = static_cast<std::uint8_t>(next_random());
  for (const int64_t num_bytes : {0, 7, 100, 3073, 101400}) {
    print("checksum", num_bytes, std::vector{distgnn::crc32c(data.data() + 1, num_bytes)});
  }
}

}  // namespace

int main() {
  run_checksums();
  const auto print_values = [](auto... values) { print(values...); };
  const auto stored_rows = [](auto* rows) { return stored(rows); };
  for (const int64_t width : {1, 7, 16, 33, 100}) {
    run<float>(width);
    run<double>(width);
    run_products<float, float>(width);
    run_products<double, double>(width);
    run_products<float, distgnn::Bf16>(width);
    run_stored(width);
    run_loss<float>(width);
    run_loss<double>(width);
    run_codecs<float>(width, print_values, next_random);
    run_codecs<distgnn::Bf16>(width, print_values, next_random);
    run_norms<float, float>(width, print_values, stored_rows, next_random);
    run_norms<double, double>(width, print_values, stored_rows, next_random);
    run_norms<float, distgnn::Bf16>(width, print_values, stored_rows, next_random);
  }
  for (const int64_t num_heads : {1, 3, 4, 8}) {
    for (const int64_t width : {1, 4, 7, 8, 16, 33, 100, 602}) {
      run_heads<float, float>(num_heads, width, print_values, stored_rows, next_random);
      run_heads<double, double>(num_heads, width, print_values, stored_rows, next_random);
      run_heads<float, distgnn::Bf16>(num_heads, width, print_values, stored_rows, next_random);
    }
  }
}
