// Prints a checksum of the output bits of every kernel on one input, a line each. The test compiles
// it once per instruction set and compares the lines.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "dropout.h"
#include "rows.h"
#include "spmm.h"

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
  std::vector<int64_t> arg(out.size()), arg_key(out.size());
  const distgnn::CsrView graph{indptr.data(), indices.data(), kRows};

  distgnn::spmm_sum<T>(graph, nullptr, x.data(), width, false, out.data());
  print("sum", width, out);
  distgnn::spmm_sum(graph, weight.data(), x.data(), width, true, out.data());
  print("weighted", width, out);
  const distgnn::MaxState<T> state{out.data(), arg.data(), arg_key.data()};
  distgnn::spmm_max(graph, key.data(), x.data(), width, 0, false, state);
  distgnn::spmm_max(graph, key.data(), x.data(), width, kEdges, true, state);
  print("max", width, out);
  print("arg", width, arg);
  print("arg_key", width, arg_key);
  distgnn::spmm_max_backward(graph, edge.data(), arg.data(), x.data(), width, 0, true, out.data());
  print("max_backward", width, out);
  distgnn::scatter_add_rows(x.data(), width, indices.data(), kRows, out.data());
  print("scatter", width, out);
  distgnn::gather_rows(x.data(), width, indices.data(), kRows, out.data());
  print("gather", width, out);
  distgnn::dropout(x.data(), key.data(), kRows, width, 5, 0.3, out.data());
  print("dropout", width, out);
  distgnn::dropout_values(weight.data(), edge.data(), indices.data(), kEdges, 5, 0.3,
                          weight.data());
  print("dropout_values", width, weight);
}

}  // namespace

int main() {
  for (const int64_t width : {1, 7, 16, 33, 100}) {
    run<float>(width);
    run<double>(width);
  }
}
