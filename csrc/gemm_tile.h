// The innermost loops of products: a tile of sums stays in registers while entries are walked.
#pragma once

#include <cstdint>

#include "panels.h"

namespace distgnn {

// Columns of a gradient's packed rows in a tile: that many rows of sums, walked at once or in
// parts.
inline constexpr int kTileColumns = 8;
// Vectors of 64 bytes that a tile has at most, and those of a row of it.
inline constexpr int kMaxTileVectors = 24;
inline constexpr int kMaxRowVectors = 3;

// Rows that will be needed next, as they are stored: a line of each is asked for with every line of
// those that are walked, because many at once would be waited for.
struct ComingRows {
  const char* const* rows;   // null if nothing is asked for
  std::int64_t entry_bytes;  // of what the walk takes at once
  std::int64_t first;        // entry of a row that is needed first
};

// A walk along the depth over a panel. E is T, or Pair where T is float.
template <typename E, typename T>
struct DepthWalk {
  const E* panel;  // (num_steps, panel_width)
  std::int64_t num_steps;
  int num_vectors;   // of the panel and of a row of sums: panel_width
  T* sums;           // (rows_of_tile(num_vectors), panel_width)
  ComingRows ahead;  // as many rows
};

// Rows of sums that walk_depth adds to at once.
int rows_of_tile(int num_vectors);

// sums[i] += sum over steps k of x[i][k] * panel[k].
template <typename E, typename T>
void walk_depth(const E* const* x, const DepthWalk<E, T>& walk);

// A walk over rows, of which it takes some columns.
template <typename E, typename T>
struct RowWalk {
  const E* grad;        // (num_steps, kTileColumns)
  const E* const* x;    // (num_steps,) rows
  std::int64_t column;  // first of each row
  std::int64_t num_steps;
  int num_vectors;   // of the columns and of a row of sums: their width
  T* sums;           // (kTileColumns, width)
  ComingRows ahead;  // num_steps rows, twice as many of pairs
};

// sums[i] += sum over steps k of grad[k][i] * x[k].
template <typename E, typename T>
void walk_rows(const RowWalk<E, T>& walk);

}  // namespace distgnn
