// The innermost loops of products: a tile of sums stays in registers while a panel is walked.
#pragma once

#include <cstdint>

#include "panels.h"

namespace distgnn {

// Columns of a gradient's packed rows in a tile: that many rows of sums, walked at once or in parts.
inline constexpr int kTileColumns = 12;
// Vectors of 64 bytes that a tile has at most.
inline constexpr int kMaxTileVectors = 24;

// A walk over a panel, and the tile of sums that is added to. E is T, or Pair where T is float.
template <typename E, typename T>
struct Walk {
  const E* panel;  // (num_steps, panel_width)
  std::int64_t num_steps;
  int num_vectors;  // of the panel and of a row of sums: panel_width
  T* sums;          // (rows of the tile, panel_width)
};

// Rows of sums that walk_rows adds to at once.
int rows_of_tile(int num_vectors);

// sums[i] += sum over steps k of rows[i][k] * panel[k].
template <typename E, typename T>
void walk_rows(const E* const* rows, const Walk<E, T>& walk);

// sums[i] += sum over steps k of columns[k * kTileColumns + i] * panel[k], for kTileColumns rows i.
template <typename E, typename T>
void walk_columns(const E* columns, const Walk<E, T>& walk);

}  // namespace distgnn
