// What norms share: columns that are worked on together, and how rows are divided for sums over
// them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "norm.h"

namespace distgnn {

inline constexpr std::int64_t kNormColumns = 64;

// Rows that have sums of their own, at least, and how many such slices there are at most: enough
// for the threads of a socket.
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

// The gradient before relu and dropout of `count` values of rows, from the first one on. Two loops:
// one with both cases is not turned into vectors, and its branches are unforeseeable.
template <typename T, typename G>
DISTGNN_INLINE void read_values(const G* grad, const G* activation, T scale, std::int64_t count,
                                T* g) {
  if (activation == nullptr) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) g[j] = widen(grad[j]);
    return;
  }
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) {
    const T scaled = static_cast<T>(widen(grad[j])) * scale;
    g[j] = widen(activation[j]) > 0 ? scaled : T(0);
  }
}

template <typename T>
DISTGNN_INLINE void read_gradient(const NormGradient<T>& gradient, std::int64_t first,
                                  std::int64_t count, T* g) {
  const Stored<const T>&grad = gradient.grad, &passed = gradient.activation;
  const bool is_masked = passed.is_here();
  if (grad.is_narrow()) {
    const Bf16* activation = is_masked ? passed.narrow + first : nullptr;
    read_values(grad.narrow + first, activation, gradient.scale, count, g);
  } else {
    const T* activation = is_masked ? passed.wide + first : nullptr;
    read_values(grad.wide + first, activation, gradient.scale, count, g);
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
