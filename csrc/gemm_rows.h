// The rows of a product, a block at a time: found, placed where a walk over the panels reads them,
// finished, and left.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "gemm.h"
#include "panels.h"

namespace distgnn {

// Rows that share a walk over the panels: a multiple of the rows of every tile, few enough that
// their entries stay in the first cache at usual depths.
inline constexpr int kBlockRows = 24;
inline constexpr std::int64_t kTaskRows = 8 * kBlockRows;

// Behind the last row of a block, that row again. A walk reads rows of E: of T, or pairs.
template <typename T, typename E>
struct Block {
  std::int64_t x_row[kMaxFactors][kBlockRows];
  std::int64_t out_row[kBlockRows];
  const E* x[kMaxFactors][kBlockRows];
  T* out[kBlockRows];
  int num_rows;
};

// Finds the rows of a block from here on.
template <typename T, typename E>
DISTGNN_INLINE void find_rows(const Product<T>& p, std::int64_t row, std::int64_t end,
                              Block<T, E>& block) {
  block.num_rows = static_cast<int>(std::min<std::int64_t>(kBlockRows, end - row));
  for (int i = 0; i < kBlockRows; ++i) {
    const std::int64_t at = row + std::min(i, block.num_rows - 1);
    for (int f = 0; f < p.num_factors; ++f) {
      const Factor<T>& factor = p.factors[f];
      block.x_row[f][i] = factor.rows != nullptr ? factor.rows[at] : at;
    }
    block.out_row[i] = p.rows != nullptr ? p.rows[at] : at;
  }
}

// Whether rows are read from the workspace: pairs are, unless they lie as a walk takes them.
template <typename T>
DISTGNN_INLINE bool is_taken(const Product<T>& p, const Factor<T>& factor) {
  if (factor.is_out) return true;
  return p.is_paired && has_pairs() ? factor.depth % 2 != 0 : factor.x.is_narrow();
}

// Where a walk reads a row, which is copied to own if need be.
template <typename T>
DISTGNN_INLINE const T* place_row(const Product<T>& p, const Factor<T>& factor, std::int64_t row,
                                  T* own) {
  const std::int64_t depth = factor.depth;
  if (p.is_paired) {
    widen_swapped(factor.x.narrow + row * depth, depth, own);
    return own;
  }
  const T* x = widened(factor.x, row, depth, own);
  return factor.is_out && x != own ? std::copy_n(x, depth, own) - depth : x;
}
DISTGNN_INLINE const Pair* place_pairs(const Factor<float>& factor, std::int64_t row, float* own) {
  const Bf16* x = factor.x.narrow + row * factor.depth;
  if (!factor.is_out && factor.depth % 2 == 0) return reinterpret_cast<const Pair*>(x);
  const auto pairs = reinterpret_cast<unsigned char*>(own);
  const Bf16 zero{0};
  std::memcpy(pairs, x, factor.depth * sizeof(Bf16));
  std::memcpy(pairs + factor.depth * sizeof(Bf16), &zero, sizeof(zero));
  return reinterpret_cast<const Pair*>(own);
}

// Places the rows of a block where they are computed with.
template <typename T, typename E>
DISTGNN_INLINE void take_rows(const Product<T>& p, Block<T, E>& block, T* workspace) {
  for (int f = 0; f < p.num_factors; ++f) {
    const Factor<T>& factor = p.factors[f];
    for (int i = 0; i < block.num_rows; ++i) {
      T* own = workspace + i * stride<T>(factor.depth);
      if constexpr (std::is_same_v<E, Pair>) {
        block.x[f][i] = place_pairs(factor, block.x_row[f][i], own);
      } else {
        block.x[f][i] = place_row(p, factor, block.x_row[f][i], own);
      }
    }
    std::fill(block.x[f] + block.num_rows, block.x[f] + kBlockRows, block.x[f][block.num_rows - 1]);
    if (is_taken(p, factor)) workspace += kBlockRows * stride<T>(factor.depth);
  }
  for (int i = 0; i < block.num_rows; ++i) {
    if (!p.out.is_narrow()) {
      block.out[i] = p.out.wide + block.out_row[i] * p.width;
      continue;
    }
    block.out[i] = workspace + i * stride<T>(p.width);
    if (p.accumulate) widened(p.out.read(), block.out_row[i], p.width, block.out[i]);
  }
}

// Finds where the rows of a factor lie that a block will need.
template <typename T, typename E>
DISTGNN_INLINE void find_places(const Factor<T>& factor, const Block<T, E>& block, int f,
                                const char** places) {
  for (int i = 0; i < kBlockRows; ++i) {
    places[i] = place_of(factor.x, block.x_row[f][i] * factor.depth);
  }
}

// Leaves a finished row.
template <typename T, typename E>
DISTGNN_INLINE void leave_row(const Product<T>& p, const Block<T, E>& block, int i) {
  if (!p.out.is_narrow()) return;
  const T* from = block.out[i];
  Bf16* to = p.out.narrow + block.out_row[i] * p.width;
#pragma omp simd
  for (std::int64_t j = 0; j < p.width; ++j) store(static_cast<float>(from[j]), to + j);
}

}  // namespace distgnn
