// How a row of features is cut into passes: vectors that stay in registers while the sources of a
// row are read.
#pragma once

#include <cstdint>

#include "isa.h"

namespace distgnn {

// A vector is 16 columns: one register of AVX-512 in float, two of AVX2, four of SSE or NEON.
inline constexpr int kLanes = 16;

// Columns [column, column + last + lanes) in num_vectors vectors of `lanes` columns. Vector i
// starts at i * lanes, the last one at `last`: where the width is no multiple of lanes it overlaps
// its neighbour, and both compute the same values for the columns they share.
struct Pass {
  std::int64_t column;
  std::int64_t last;
  int num_vectors;
};

// Numbers of vectors there is code for.
inline constexpr int kPassSizes[] = {16, 12, 8, 7, 6, 5, 4, 3, 2, 1};

// The pass that starts at a column. A width of at least lanes is a precondition. widest is the
// largest number of vectors that fit into the registers.
inline Pass pass_at(std::int64_t width, std::int64_t column, int widest, int lanes = kLanes) {
  const std::int64_t left = width - column;
  const std::int64_t needed = (left + lanes - 1) / lanes;
  for (const int size : kPassSizes) {
    if (size > widest) continue;
    if (size == needed) return {column, left - lanes, size};
    // A last pass of one vector could only overlap columns that another pass has written.
    const bool leaves_part_of_vector = needed - size == 1 && left % lanes != 0;
    if (size < needed && !leaves_part_of_vector) {
      return {column, static_cast<std::int64_t>(size - 1) * lanes, size};
    }
  }
  return {column, 0, 1};
}

}  // namespace distgnn
