// How a row of features is cut into tiles that stay in vector registers.
#pragma once

#include <cstdint>

#include "isa.h"

namespace distgnn {

// Edges between the prefetch of a source row and its use. Measured on two Zen 5 cores with 200,000
// vertices of degree 15: 2, 4, 8, 16, 32 and 64 edges take 4.5, 2.0, 1.7, 1.3, 1.0 and 0.9 units of
// time at width 64; at widths 16 and 256 it is all the same from 16 on.
inline constexpr std::int64_t kPrefetchDistance = 32;

// Asks for the cache lines of kCount values; the last value may lie on a line of its own.
template <int kCount, typename T>
DISTGNN_INLINE void prefetch_tile(const T* first) {
  constexpr int kPerLine = 64 / sizeof(T);
  for (int j = 0; j < kCount; j += kPerLine) __builtin_prefetch(first + j);
  if (kCount > 1) __builtin_prefetch(first + kCount - 1);
}

template <int kColumns>
struct Tile {
  static constexpr int kNumColumns = kColumns;
  std::int64_t column;  // first column the tile reads
  int skip;             // columns at its start that another tile writes
};

// Calls body(Tile<n>{column, skip}) so that every column of [0, width) is written by one tile.
// kWidest is the number of columns of the largest tile: 16, 32 or 64. What is left after the
// whole tiles is covered by one more that ends at the last column, overlaps its neighbour and
// leaves the overlap unwritten: cheaper than a loop over single columns.
template <int kWidest, typename Body>
DISTGNN_INLINE void for_tiles(std::int64_t width, const Body& body) {
  static_assert(kWidest == 16 || kWidest == 32 || kWidest == 64);
  std::int64_t column = 0;
  for (; column + kWidest <= width; column += kWidest) body(Tile<kWidest>{column, 0});
  if constexpr (kWidest > 32) {
    if (column + 32 <= width) {
      body(Tile<32>{column, 0});
      column += 32;
    }
  }
  if constexpr (kWidest > 16) {
    if (column + 16 <= width) {
      body(Tile<16>{column, 0});
      column += 16;
    }
  }
  if (column == width) return;
  if (width >= 16) {
    body(Tile<16>{width - 16, static_cast<int>(16 - (width - column))});
    return;
  }
  for (; column + 4 <= width; column += 4) body(Tile<4>{column, 0});
  if (column == width) return;
  if (width >= 4) {
    body(Tile<4>{width - 4, static_cast<int>(4 - (width - column))});
    return;
  }
  for (; column < width; ++column) body(Tile<1>{column, 0});
}

}  // namespace distgnn
