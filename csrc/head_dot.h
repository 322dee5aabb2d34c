// Dot products per head of a row that stays and rows that pass by.
//
// Order of additions, the same on every instruction set: the products of a block of columns are
// added lane by lane to one vector, that is folded to four partial sums by adding its halves, the
// blocks of a head are added in order, and the four sums last.
#pragma once

#include <cstdint>

#include "heads.h"
#include "isa.h"

namespace distgnn {

// Partial sums of a dot product.
inline constexpr int kPartials = 4;

// Copies the columns of the pass. Those that belong to the vector before become zero, so that no
// product is counted twice.
template <int kVectors, int kLanesOf, typename T>
DISTGNN_INLINE void load_row(const HeadPass& pass, const T* row, T* local) {
  for (int v = 0; v < kVectors; ++v) {
    const auto skip = static_cast<int>(pass.skip[v]);
    for (int j = 0; j < kLanesOf; ++j) {
      local[v * kLanesOf + j] = j < skip ? T(0) : row[pass.start[v] + j];
    }
  }
}

// dots[head][0 .. kPartials) (+)= partial sums of local * row, over the columns of the pass.
template <int kVectors, int kLanesOf, typename T>
DISTGNN_INLINE void add_dots(const HeadPass& pass, const T* local, const T* row, T* dots) {
  constexpr int kKept = kLanesOf < kPartials ? kLanesOf : kPartials;
  T part[kLanesOf] = {};
  for (int v = 0; v < kVectors; ++v) {
    const T* values = row + pass.start[v];
    const T* factors = local + v * kLanesOf;
    if (pass.starts_block[v]) {
#pragma omp simd
      for (int j = 0; j < kLanesOf; ++j) part[j] = values[j] * factors[j];
    } else {
#pragma omp simd
      for (int j = 0; j < kLanesOf; ++j) part[j] += values[j] * factors[j];
    }
    if (!pass.ends_block[v]) continue;
    for (int half = kLanesOf / 2; half >= kPartials; half /= 2) {
#pragma omp simd
      for (int j = 0; j < half; ++j) part[j] += part[j + half];
    }
    T* sums = dots + pass.head[v] * kPartials;
    if (pass.starts_head[v]) {
      for (int j = 0; j < kPartials; ++j) sums[j] = j < kKept ? part[j] : T(0);
    } else {
      for (int j = 0; j < kKept; ++j) sums[j] += part[j];
    }
  }
}

// Adds up the partial sums.
template <typename T>
DISTGNN_INLINE T finished_dot(const T* sums) {
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

}  // namespace distgnn
