// What norms share: columns that are worked on together, and how rows are divided for sums over them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "norm.h"

namespace distgnn {

inline constexpr std::int64_t kTileColumns = 64;

// Rows that have sums of their own, at least, and how many such slices there are at most: enough for
// the threads of a socket.
struct Slices {
  explicit Slices(std::int64_t num_rows) {
    constexpr std::int64_t kMinRows = 512;
    constexpr std::int64_t kMaxSlices = 64;
    count = std::clamp<std::int64_t>((num_rows + kMinRows - 1) / kMinRows, 1, kMaxSlices);
    rows = (num_rows + count - 1) / count;
  }
  std::int64_t count;
  std::int64_t rows;  // of each but the last ones
};

// Calls leaf(slice, begin, end) for all slices, on all threads; some of the last may be empty.
template <typename Leaf>
void for_slices(std::int64_t num_rows, const Leaf& leaf) {
  const Slices slices(num_rows);
#pragma omp parallel for schedule(dynamic) if (slices.count > 1)
  for (std::int64_t slice = 0; slice < slices.count; ++slice) {
    const std::int64_t begin = std::min(num_rows, slice * slices.rows);
    leaf(slice, begin, std::min(num_rows, begin + slices.rows));
  }
}

// The gradient before relu and dropout of columns [column, column + count) of a row.
template <typename T>
DISTGNN_INLINE void read_gradient(const NormGradient<T>& gradient, std::int64_t first,
                                  std::int64_t count, T* g) {
  const bool is_masked = gradient.activation.is_here();
  if (gradient.grad.is_narrow()) {
    const Bf16* from = gradient.grad.narrow + first;
    const Bf16* passed = is_masked ? gradient.activation.narrow + first : from;
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) {
      const T value = widen(from[j]);
      g[j] = is_masked ? through_activation(value, passed[j], gradient.scale) : value;
    }
    return;
  }
  const T* from = gradient.grad.wide + first;
  const T* passed = is_masked ? gradient.activation.wide + first : from;
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) {
    g[j] = is_masked ? through_activation(from[j], passed[j], gradient.scale) : from[j];
  }
}

// Leaves the values of some columns of a row.
template <typename T>
DISTGNN_INLINE void leave_tile(const T* values, const Stored<T>& out, std::int64_t first,
                               std::int64_t count) {
  if (!out.is_narrow()) {
    std::copy_n(values, count, out.wide + first);
    return;
  }
  Bf16* to = out.narrow + first;
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) store(static_cast<float>(values[j]), to + j);
}

}  // namespace distgnn
