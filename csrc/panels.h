// Vectors of one cache line, and how columns are cut into panels of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "isa.h"

namespace distgnn {

template <typename T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float type __attribute__((vector_size(64)));
  typedef float in_memory __attribute__((vector_size(64), aligned(4), may_alias));
};
template <>
struct VectorOf<double> {
  typedef double type __attribute__((vector_size(64)));
  typedef double in_memory __attribute__((vector_size(64), aligned(8), may_alias));
};

template <typename T>
inline constexpr int kVectorLanes = 64 / sizeof(T);

template <typename T>
DISTGNN_INLINE void load(const T* from, typename VectorOf<T>::type& to) {
  to = *reinterpret_cast<const typename VectorOf<T>::in_memory*>(from);
}
template <typename T>
DISTGNN_INLINE void store_vector(const typename VectorOf<T>::type& from, T* to) {
  *reinterpret_cast<typename VectorOf<T>::in_memory*>(to) = from;
}

DISTGNN_INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DISTGNN_INLINE double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

// sum += x * y with one rounding per lane.
template <typename T>
DISTGNN_INLINE void multiply_add(T x, const typename VectorOf<T>::type& y,
                                 typename VectorOf<T>::type& sum) {
  using Vector = typename VectorOf<T>::type;
  const Vector xs = x - Vector{};  // x in all lanes; x + 0 would lose the sign of -0
#pragma omp simd
  for (int j = 0; j < kVectorLanes<T>; ++j) sum[j] = fused(xs[j], y[j], sum[j]);
}

// Panels are two vectors wide; the last one has one, two or three. The values of a panel lie row
// by row, those of the panel at `column` start at column * depth.
inline constexpr int kPanelVectors = 2;
inline constexpr int kMaxPanelVectors = 3;

template <typename T>
inline int panel_vectors(std::int64_t width, std::int64_t column) {
  const std::int64_t left = (width - column + kVectorLanes<T> - 1) / kVectorLanes<T>;
  return left <= kMaxPanelVectors ? static_cast<int>(left) : kPanelVectors;
}

// Columns with those that pad the last vector.
template <typename T>
inline std::int64_t padded(std::int64_t width) {
  return (width + kVectorLanes<T> - 1) / kVectorLanes<T> * kVectorLanes<T>;
}

}  // namespace distgnn
