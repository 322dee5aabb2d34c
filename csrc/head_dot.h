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

// Adds up the partial sums.
template <typename T>
DISTGNN_INLINE T finished_dot(const T* sums) {
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

}  // namespace distgnn
