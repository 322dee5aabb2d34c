// What is done to a row on its way out of a kernel.
#pragma once

#include <cstdint>

#include "mask.h"
#include "number.h"

namespace distgnn {

// * row_factor, + bias, relu, dropout, in this order. Null or false leaves a step out.
template <typename T>
struct Finish {
  const T* row_factor;          // (num_rows,)
  const T* bias;                // (width,)
  bool has_relu;                // a NaN stays one
  const std::int64_t* row_key;  // (num_rows,); dropout
  MaskRule<T> rule;
};

// Finishes columns [first, first + count) of a row, which are out[0] to out[count - 1].
template <typename T>
DISTGNN_INLINE void finish_columns(const Finish<T>& finish, std::int64_t row, std::int64_t first,
                                   std::int64_t count, T* out) {
  const T factor = finish.row_factor != nullptr ? finish.row_factor[row] : T(1);
  if (finish.row_factor != nullptr) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) out[j] *= factor;
  }
  if (finish.bias != nullptr) {
    const T* bias = finish.bias + first;
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) out[j] += bias[j];
  }
  if (finish.has_relu) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) out[j] = out[j] < T(0) ? T(0) : out[j];
  }
  if (finish.row_key != nullptr) {
    const std::uint64_t bits = row_bits(finish.rule.seed, finish.row_key[row]);
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) {
      const auto column = static_cast<std::uint32_t>(first + j);
      const bool is_kept = column_hash(bits, column) >= finish.rule.threshold;
      const T scaled = out[j] * finish.rule.scale;
      out[j] = is_kept ? scaled : T(0);
    }
  }
}

// The way back through relu and dropout: scaled where the activation, which they left, is positive,
// 0 elsewhere.
template <typename T, typename A>
DISTGNN_INLINE T through_activation(T grad, A activation, T scale) {
  const T scaled = grad * scale;
  return widen(activation) > 0 ? scaled : T(0);
}

}  // namespace distgnn
