// Algorithm: rows of a state are divided, finished and left in one pass.
// Formula: result = dropout(relu(out / denominator + bias)); log-sum = maximum + log(denominator).
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
#include <algorithm>

#include "attention.h"
#include "exponential.h"
#include "isa.h"

namespace distgnn {
namespace {

using std::int64_t;

// Columns that are finished at a time: they stay in the first cache.
constexpr int64_t kColumns = 512;

template <typename T>
struct FinishArgs {
  int64_t num_heads;
  int64_t width;
  AttentionState<T> state;
  Finish<T> finish;
  Stored<T> result;
};

// Sums of columns of a head over its denominator, and 0 where nothing was seen. kCount is their
// number, or 0 if there is no code for it: a loop whose length is not known costs more than the
// divisions of a narrow head.
template <int kCount, typename T>
DISTGNN_INLINE void divide(const T* sums, T denominator, int64_t num_columns, T* out) {
  const int64_t count = kCount > 0 ? kCount : num_columns;
  if (denominator == 0) {
    std::fill_n(out, count, T(0));
    return;
  }
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) out[j] = sums[j] / denominator;
}

// Columns [first, last) of a row, which lie in whole heads of kWidth columns, or of any number.
template <int kWidth, typename T>
DISTGNN_INLINE void divide_columns(const FinishArgs<T>& a, int64_t row, int64_t first, int64_t last,
                                   T* out) {
  const int64_t width = kWidth > 0 ? kWidth : a.width;
  const T* sums = a.state.out + row * a.num_heads * width;
  const T* denominator = a.state.denominator + row * a.num_heads;
  for (int64_t column = first; column < last;) {
    const int64_t head = column / width;
    const int64_t end = std::min(last, (head + 1) * width);
    divide<kWidth>(sums + column, denominator[head], end - column, out + (column - first));
    column = end;
  }
}

template <typename T>
DISTGNN_INLINE void leave(const Stored<T>& result, int64_t at, int64_t count, const T* values) {
  if (result.is_narrow()) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      store(static_cast<float>(values[j]), result.narrow + at + j);
    }
    return;
  }
  std::copy_n(values, count, result.wide + at);
}

// The results of a row: the width of heads is kWidth, or any.
template <int kWidth, typename T>
DISTGNN_INLINE void finish_row(const FinishArgs<T>& a, int64_t row) {
  const int64_t columns = a.num_heads * a.width;
  T values[kColumns];
  for (int64_t first = 0; first < columns; first += kColumns) {
    const int64_t last = std::min(columns, first + kColumns);
    divide_columns<kWidth>(a, row, first, last, values);
    finish_columns(a.finish, row, first, last - first, values);
    leave(a.result, row * columns + first, last - first, values);
  }
}

template <typename T>
DISTGNN_PER_ISA void finish_rows(const FinishArgs<T>& a, int64_t begin, int64_t end) {
  const AttentionState<T>& state = a.state;
  const int64_t first = begin * a.num_heads, last = end * a.num_heads;
  // Of a denominator of 0 the logarithm is a number, which is not kept. Two loops: in one, GCC
  // makes a branch around the logarithm, and no vectors.
#pragma omp simd
  for (int64_t at = first; at < last; ++at) {
    state.maximum[at] += logarithm(state.denominator[at]);
  }
#pragma omp simd
  for (int64_t at = first; at < last; ++at) {
    state.maximum[at] = state.denominator[at] == 0 ? T(0) : state.maximum[at];
  }
  for (int64_t row = begin; row < end; ++row) {
    switch (a.width) {
      case 4: finish_row<4>(a, row); break;
      case 8: finish_row<8>(a, row); break;
      case 16: finish_row<16>(a, row); break;
      default: finish_row<0>(a, row); break;
    }
  }
}

// Sums that a product is added up in.
constexpr int kSums = 16;

template <typename T, typename X>
struct DeltaArgs {
  int64_t num_heads;
  int64_t width;
  const X* grad;
  const X* result;
  const T* bias;
  T scale;
  T* out;
};

template <bool kHasBias, typename T, typename X>
DISTGNN_INLINE T delta_of_head(const X* grad, const X* result, const T* bias, T scale,
                               int64_t width) {
  T sum[kSums] = {};
  int64_t first = 0;
  for (; first + kSums <= width; first += kSums) {
#pragma omp simd
    for (int j = 0; j < kSums; ++j) {
      const T value = widen(result[first + j]) * scale;
      sum[j] += widen(grad[first + j]) * (kHasBias ? value - bias[first + j] : value);
    }
  }
  for (int j = 0; first + j < width; ++j) {
    const T value = widen(result[first + j]) * scale;
    sum[j] += widen(grad[first + j]) * (kHasBias ? value - bias[first + j] : value);
  }
  for (int half = kSums / 2; half > 0; half /= 2) {
#pragma omp simd
    for (int j = 0; j < half; ++j) sum[j] += sum[j + half];
  }
  return sum[0];
}

template <typename T, typename X>
DISTGNN_PER_ISA void delta_of_rows(const DeltaArgs<T, X>& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t head = 0; head < a.num_heads; ++head) {
      const int64_t at = row * a.num_heads + head;
      const X* grad = a.grad + at * a.width;
      const X* result = a.result + at * a.width;
      if (a.bias == nullptr) {
        a.out[at] = delta_of_head<false, T>(grad, result, nullptr, a.scale, a.width);
      } else {
        a.out[at] = delta_of_head<true>(grad, result, a.bias + head * a.width, a.scale, a.width);
      }
    }
  }
}

}  // namespace

template <typename T>
void finish_attention(int64_t num_rows, int64_t num_heads, int64_t width,
                      const AttentionState<T>& state, const Finish<T>& finish,
                      const Stored<T>& result) {
  const FinishArgs<T> a{num_heads, width, state, finish, result};
  for_row_blocks(num_rows, [&](int64_t begin, int64_t end) { finish_rows(a, begin, end); });
}

template <typename T, typename X>
void attention_delta(int64_t num_rows, int64_t num_heads, int64_t width, const X* grad,
                     const X* result, const T* bias, T scale, T* out) {
  const DeltaArgs<T, X> a{num_heads, width, grad, result, bias, scale, out};
  for_row_blocks(num_rows, [&](int64_t begin, int64_t end) { delta_of_rows(a, begin, end); });
}

#define DISTGNN_FINISH(T)                                                                     \
  template void finish_attention(int64_t, int64_t, int64_t, const AttentionState<T>&,         \
                                 const Finish<T>&, const Stored<T>&);
#define DISTGNN_DELTA(T, X)                                                                   \
  template void attention_delta(int64_t, int64_t, int64_t, const X*, const X*, const T*, T, T*);
DISTGNN_FINISH(float)
DISTGNN_FINISH(double)
DISTGNN_DELTA(float, float)
DISTGNN_DELTA(double, double)
DISTGNN_DELTA(float, Bf16)
#undef DISTGNN_FINISH
#undef DISTGNN_DELTA

}  // namespace distgnn
