#include "gemm.h"

#include <omp.h>

#include "panels.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// Rows that share a walk over the panels: a multiple of the rows of every tile, few enough that
// their entries stay in the first cache at usual depths.
constexpr int kBlockRows = 24;
constexpr int64_t kTaskRows = 8 * kBlockRows;

// Behind the last row of a block, that row again.
template <typename T>
struct Block {
  int64_t x_row[kMaxFactors][kBlockRows];
  int64_t out_row[kBlockRows];
  const T* x[kMaxFactors][kBlockRows];
  T* out[kBlockRows];
  int num_rows;
};

// Finds the rows of a block from here on.
template <typename T>
DISTGNN_INLINE void find_rows(const Product<T>& p, int64_t row, int64_t end, Block<T>& block) {
  block.num_rows = static_cast<int>(std::min<int64_t>(kBlockRows, end - row));
  for (int i = 0; i < kBlockRows; ++i) {
    const int64_t at = row + std::min(i, block.num_rows - 1);
    for (int f = 0; f < p.num_factors; ++f) {
      const Factor<T>& factor = p.factors[f];
      block.x_row[f][i] = factor.rows != nullptr ? factor.rows[at] : at;
    }
    block.out_row[i] = p.rows != nullptr ? p.rows[at] : at;
  }
}

// Values from one row to the next in the workspace: a line more than the row, so that rows do not
// share sets of the first cache.
template <typename T>
DISTGNN_INLINE int64_t stride(int64_t width) {
  return padded<T>(width) + kVectorLanes<T>;
}

// Whether rows are computed with in the workspace.
template <typename T>
DISTGNN_INLINE bool is_taken(const Factor<T>& factor) {
  return factor.x.is_narrow() || factor.is_out;
}

// Places the rows of a block where they are computed with.
template <typename T>
DISTGNN_INLINE void take_rows(const Product<T>& p, Block<T>& block, T* workspace) {
  for (int f = 0; f < p.num_factors; ++f) {
    const Factor<T>& factor = p.factors[f];
    for (int i = 0; i < block.num_rows; ++i) {
      T* own = workspace + i * stride<T>(factor.depth);
      block.x[f][i] = widened(factor.x, block.x_row[f][i], factor.depth, own);
      if (!factor.is_out || factor.x.is_narrow()) continue;
      std::copy_n(block.x[f][i], factor.depth, own);
      block.x[f][i] = own;
    }
    for (int i = block.num_rows; i < kBlockRows; ++i) block.x[f][i] = block.x[f][block.num_rows - 1];
    if (is_taken(factor)) workspace += kBlockRows * stride<T>(factor.depth);
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

// Leaves a finished row.
template <typename T>
DISTGNN_INLINE void leave_row(const Product<T>& p, const Block<T>& block, int i) {
  if (!p.out.is_narrow()) return;
  const T* from = block.out[i];
  Bf16* to = p.out.narrow + block.out_row[i] * p.width;
#pragma omp simd
  for (int64_t j = 0; j < p.width; ++j) store(static_cast<float>(from[j]), to + j);
}

// Asks for a share of the rows of a block while another is worked on.
template <typename T>
DISTGNN_INLINE void prefetch_rows(const Product<T>& p, const Block<T>& block, int first, int last) {
  for (int i = first; i < std::min(last, block.num_rows); ++i) {
    for (int f = 0; f < p.num_factors; ++f) {
      prefetch_row(p.factors[f].x, block.x_row[f][i], p.factors[f].depth);
    }
    prefetch_row(p.out, block.out_row[i], p.width);
  }
}

// kRows x kVectors vectors of the product, kept in registers over the whole depth.
template <int kRows, int kVectors, typename T>
DISTGNN_INLINE void multiply_tile(const Product<T>& p, const Block<T>& block, int first,
                                  int64_t column, int64_t panel_column, int64_t panel_width) {
  using Vector = typename VectorOf<T>::type;
  constexpr int kLanes = kVectorLanes<T>;
  Vector sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) sum[i][j] = Vector{};
  }
  for (int f = 0; f < p.num_factors; ++f) {
    const T* x[kRows];
    for (int i = 0; i < kRows; ++i) x[i] = block.x[f][first + i];
    const int64_t depth = p.factors[f].depth;
    const T* panel = p.factors[f].panels + panel_column * depth + (column - panel_column);
    for (int64_t k = 0; k < depth; ++k, panel += panel_width) {
      Vector y[kVectors];
      for (int j = 0; j < kVectors; ++j) {
        __builtin_prefetch(panel + 8 * panel_width + j * kLanes);
        load(panel + j * kLanes, y[j]);
      }
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
        for (int j = 0; j < kVectors; ++j) multiply_add(x[i][k], y[j], sum[i][j]);
      }
    }
  }
  const int num_rows = std::min(kRows, block.num_rows - first);
  const int64_t num_columns = std::min<int64_t>(kVectors * kLanes, p.width - column);
  T tile[kRows][kVectors * kLanes];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) store_vector(sum[i][j], tile[i] + j * kLanes);
  }
  for (int i = 0; i < num_rows; ++i) {
    T* out = block.out[first + i] + column;
    if (p.accumulate) {
#pragma omp simd
      for (int64_t j = 0; j < num_columns; ++j) out[j] += tile[i][j];
    } else {
#pragma omp simd
      for (int64_t j = 0; j < num_columns; ++j) out[j] = tile[i][j];
    }
  }
}

// The rows of the next block, asked for a few at a time: many at once would be waited for.
template <typename T>
struct Coming {
  Block<T> block;
  int asked;
  int per_tile;
};

template <int kRows, int kVectors, typename T>
DISTGNN_INLINE void multiply_tiles(const Product<T>& p, const Block<T>& block, Coming<T>& coming,
                                   int64_t column, int64_t panel_column, int64_t panel_width) {
  for (int first = 0; first < block.num_rows; first += kRows) {
    prefetch_rows(p, coming.block, coming.asked, coming.asked + coming.per_tile);
    coming.asked += coming.per_tile;
    multiply_tile<kRows, kVectors>(p, block, first, column, panel_column, panel_width);
  }
}

// kIsWide: 32 registers hold a tile of 24 vectors; otherwise a vector takes two registers of 16.
template <bool kIsWide, typename T>
DISTGNN_INLINE void multiply_block(const Product<T>& p, const Block<T>& block,
                                   Coming<T>& coming) {
  constexpr int kLanes = kVectorLanes<T>;
  const int64_t num_tiles = 2 * ((p.width - 1) / (kPanelVectors * kLanes) + 1);
  coming.asked = 0;
  coming.per_tile = static_cast<int>((kBlockRows - 1) / num_tiles + 1);
  for (int64_t column = 0; column < p.width;) {
    const int num_vectors = panel_vectors<T>(p.width, column);
    const int64_t panel_width = num_vectors * kLanes;
    if (!kIsWide) {
      for (int64_t at = column; at < column + panel_width; at += kLanes) {
        multiply_tiles<6, 1>(p, block, coming, at, column, panel_width);
      }
    } else if (num_vectors == 1) {
      multiply_tiles<12, 1>(p, block, coming, column, column, panel_width);
    } else if (num_vectors == 2) {
      multiply_tiles<12, 2>(p, block, coming, column, column, panel_width);
    } else {
      multiply_tiles<8, 3>(p, block, coming, column, column, panel_width);
    }
    column += panel_width;
  }
}

template <typename T>
DISTGNN_INLINE void finish_row(const Finish<T>& finish, int64_t row, int64_t width, T* out) {
  const T factor = finish.row_factor != nullptr ? finish.row_factor[row] : T(1);
  if (finish.row_factor != nullptr) {
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) out[j] *= factor;
  }
  if (finish.bias != nullptr) {
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) out[j] += finish.bias[j];
  }
  if (finish.has_relu) {
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) out[j] = out[j] < T(0) ? T(0) : out[j];
  }
  if (finish.row_key != nullptr) {
    const std::uint64_t bits = row_bits(finish.rule.seed, finish.row_key[row]);
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) {
      const bool is_kept =
          column_hash(bits, static_cast<std::uint32_t>(j)) >= finish.rule.threshold;
      const T scaled = out[j] * finish.rule.scale;
      out[j] = is_kept ? scaled : T(0);
    }
  }
}

template <bool kIsWide, typename T>
DISTGNN_PER_ISA void multiply_rows(const Product<T>& p, int64_t begin, int64_t end, T* workspace) {
  Block<T> block;
  Coming<T> coming;
  find_rows(p, begin, end, coming.block);
  for (int64_t row = begin; row < end; row += kBlockRows) {
    block = coming.block;
    coming.block.num_rows = 0;
    if (row + kBlockRows < end) find_rows(p, row + kBlockRows, end, coming.block);
    take_rows(p, block, workspace);
    if (p.num_factors > 0) multiply_block<kIsWide>(p, block, coming);
    for (int i = 0; i < block.num_rows; ++i) {
      finish_row(p.finish, row + i, p.width, block.out[i]);
      leave_row(p, block, i);
    }
  }
}

// Values of workspace for one thread.
template <typename T>
int64_t thread_workspace(const Product<T>& p) {
  int64_t columns = p.out.is_narrow() ? stride<T>(p.width) : 0;
  for (int f = 0; f < p.num_factors; ++f) {
    if (is_taken(p.factors[f])) columns += stride<T>(p.factors[f].depth);
  }
  return kBlockRows * columns;
}

}  // namespace

template <typename T>
int64_t panels_size(int64_t depth, int64_t width) {
  return depth * padded<T>(width);
}

template <typename T>
void pack_panels(const T* matrix, int64_t depth, int64_t width, int64_t row_stride,
                 int64_t column_stride, T* panels) {
  for (int64_t column = 0; column < width;) {
    const int64_t panel_width = panel_vectors<T>(width, column) * kVectorLanes<T>;
    T* panel = panels + column * depth;
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = 0; j < panel_width; ++j) {
        const bool is_inside = column + j < width;
        panel[k * panel_width + j] =
            is_inside ? matrix[k * row_stride + (column + j) * column_stride] : T(0);
      }
    }
    column += panel_width;
  }
}

template <typename T>
int64_t multiply_workspace(const Product<T>& product, int num_threads) {
  return num_threads * thread_workspace(product);
}

template <typename T>
void multiply(const Product<T>& product, T* workspace) {
  const bool is_wide = widest_pass() >= 16;
  const int64_t num_tasks = (product.num_rows + kTaskRows - 1) / kTaskRows;
  const int64_t thread_size = thread_workspace(product);
#pragma omp parallel for schedule(dynamic) if (num_tasks > 1)
  for (int64_t task = 0; task < num_tasks; ++task) {
    const int64_t begin = task * kTaskRows;
    const int64_t end = std::min(product.num_rows, begin + kTaskRows);
    T* own = workspace + omp_get_thread_num() * thread_size;
    if (is_wide) {
      multiply_rows<true>(product, begin, end, own);
    } else {
      multiply_rows<false>(product, begin, end, own);
    }
  }
}

#define DISTGNN_GEMM(T)                                                                       \
  template int64_t panels_size<T>(int64_t, int64_t);                                          \
  template void pack_panels(const T*, int64_t, int64_t, int64_t, int64_t, T*);                \
  template int64_t multiply_workspace(const Product<T>&, int);                                \
  template void multiply(const Product<T>&, T*);
DISTGNN_GEMM(float)
DISTGNN_GEMM(double)

}  // namespace distgnn
