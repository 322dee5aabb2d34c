// Algorithm: the small matrix is packed into panels; a tile of sums stays in registers.
// Formula: out = sum over factors of x W, then times a row factor, plus bias, relu, dropout.
// Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
#include "gemm.h"

#include <omp.h>

#include <type_traits>

#include "gemm_rows.h"
#include "gemm_tile.h"
#include "panels.h"

namespace distgnn {
namespace {

using std::int64_t;

// Adds a tile of the product to what lies there, or puts it there.
template <typename T, typename E>
DISTGNN_INLINE void leave_tile(const Product<T>& p, const Block<T, E>& block, int first,
                               int64_t column, int num_rows, int64_t panel_width, const T* tile) {
  const int64_t num_columns = std::min(panel_width, p.width - column);
  for (int i = 0; i < std::min(num_rows, block.num_rows - first); ++i, tile += panel_width) {
    T* out = block.out[first + i] + column;
    if (p.accumulate) {
#pragma omp simd
      for (int64_t j = 0; j < num_columns; ++j) out[j] += tile[j];
    } else {
#pragma omp simd
      for (int64_t j = 0; j < num_columns; ++j) out[j] = tile[j];
    }
  }
}

// The columns of a panel for the rows of a block, while those of the coming one are asked for: its
// places in out, and with the first panel its rows.
template <typename T, typename E>
DISTGNN_INLINE void multiply_panel(const Product<T>& p, const Block<T, E>& block,
                                   const Block<T, E>& coming, int64_t column, int num_vectors) {
  const int num_rows = rows_of_tile(num_vectors);
  const int64_t panel_width = num_vectors * kVectorLanes<T>;
  alignas(64) T tile[kMaxTileVectors * kVectorLanes<T>];
  const char* places[kMaxFactors][kBlockRows];
  for (int f = 0; f < p.num_factors && column == 0; ++f) {
    find_places(p.factors[f], coming, f, places[f]);
  }
  for (int first = 0; first < block.num_rows; first += num_rows) {
    for (int i = first; i < first + num_rows; ++i) {
      const char* out = place_of(p.out, coming.out_row[i] * p.width + column);
      for (int j = 0; j < num_vectors; ++j) __builtin_prefetch(out + 64 * j, 1, 2);
    }
    std::fill_n(tile, num_rows * panel_width, T(0));
    for (int f = 0; f < p.num_factors; ++f) {
      const Factor<T>& factor = p.factors[f];
      const int64_t steps = num_steps<E>(factor.depth);
      const E* panel = reinterpret_cast<const E*>(factor.panels) + column * steps;
      const int64_t entry_bytes = value_bytes(factor.x) * (std::is_same_v<E, Pair> ? 2 : 1);
      const ComingRows ahead{column == 0 ? places[f] + first : nullptr, entry_bytes, 0};
      const DepthWalk<E, T> walk{panel, steps, num_vectors, tile, ahead};
      walk_depth(block.x[f] + first, walk);
    }
    leave_tile(p, block, first, column, num_rows, panel_width, tile);
  }
}

template <typename T, typename E>
DISTGNN_INLINE void multiply_block(const Product<T>& p, const Block<T, E>& block,
                                   const Block<T, E>& coming) {
  const Flushing flushing(p.is_paired);
  for (int64_t column = 0; column < p.width;) {
    const int num_vectors = panel_vectors<T>(p.width, column);
    multiply_panel(p, block, coming, column, num_vectors);
    column += num_vectors * kVectorLanes<T>;
  }
}

template <typename E, typename T>
DISTGNN_INLINE void multiply_blocks(const Product<T>& p, int64_t begin, int64_t end, T* workspace) {
  Block<T, E> block, coming;
  find_rows(p, begin, end, coming);
  for (int64_t row = begin; row < end; row += kBlockRows) {
    block = coming;
    if (row + kBlockRows < end) find_rows(p, row + kBlockRows, end, coming);
    take_rows(p, block, workspace);
    if (p.num_factors > 0) multiply_block(p, block, coming);
    for (int i = 0; i < block.num_rows; ++i) {
      finish_columns(p.finish, row + i, 0, p.width, block.out[i]);
      leave_row(p, block, i);
    }
  }
}

template <typename T>
DISTGNN_PER_ISA void multiply_rows(const Product<T>& p, int64_t begin, int64_t end, T* workspace) {
  multiply_blocks<T>(p, begin, end, workspace);
}

DISTGNN_PER_ISA void multiply_pairs(const Product<float>& p, int64_t begin, int64_t end,
                                    float* workspace) {
  multiply_blocks<Pair>(p, begin, end, workspace);
}

template <typename T>
void multiply_task(const Product<T>& p, int64_t begin, int64_t end, T* workspace) {
  if constexpr (std::is_same_v<T, float>) {
    if (p.is_paired && has_pairs()) return multiply_pairs(p, begin, end, workspace);
  }
  multiply_rows(p, begin, end, workspace);
}

// Values of workspace for one thread.
template <typename T>
int64_t thread_workspace(const Product<T>& p) {
  int64_t columns = p.out.is_narrow() ? stride<T>(p.width) : 0;
  for (int f = 0; f < p.num_factors; ++f) {
    if (is_taken(p, p.factors[f])) columns += stride<T>(p.factors[f].depth);
  }
  return kBlockRows * columns;
}

// A matrix as it is given.
template <typename T>
struct Matrix {
  const T* entries;
  int64_t depth;
  int64_t width;
  int64_t row_stride;
  int64_t column_stride;
  T at(int64_t k, int64_t j) const {
    return k < depth && j < width ? entries[k * row_stride + j * column_stride] : T(0);
  }
  Bf16 rounded(int64_t k, int64_t j) const {
    Bf16 entry;
    store(static_cast<float>(at(k, j)), &entry);
    return entry;
  }
};

// Entries of a panel: of the matrix, or of pairs of its rows, whole or the second of them first.
template <typename T>
void find_entry(const Matrix<T>& matrix, int64_t step, int64_t column, bool is_paired, T* entry) {
  if (!is_paired) {
    *entry = matrix.at(step, column);
  } else {
    *entry = widen(matrix.rounded(swapped(step, matrix.depth), column));
  }
}
template <typename T>
void find_entry(const Matrix<T>& matrix, int64_t step, int64_t column, bool, Pair* entry) {
  *entry = pair_of(matrix.rounded(2 * step, column), matrix.rounded(2 * step + 1, column));
}

template <typename E, typename T>
void pack(const Matrix<T>& matrix, bool is_paired, E* panels) {
  const int64_t steps = num_steps<E>(matrix.depth);
  for (int64_t column = 0; column < matrix.width;) {
    const int64_t panel_width = panel_vectors<E>(matrix.width, column) * kVectorLanes<E>;
    E* panel = panels + column * steps;
    for (int64_t k = 0; k < steps; ++k) {
      for (int64_t j = 0; j < panel_width; ++j) {
        find_entry(matrix, k, column + j, is_paired, &panel[k * panel_width + j]);
      }
    }
    column += panel_width;
  }
}

}  // namespace

template <typename T>
int64_t panels_size(int64_t depth, int64_t width, bool is_paired) {
  return (is_paired && has_pairs() ? num_steps<Pair>(depth) : depth) * padded<T>(width);
}

template <typename T>
void pack_panels(const T* matrix, int64_t depth, int64_t width, int64_t row_stride,
                 int64_t column_stride, bool is_paired, T* panels) {
  const Matrix<T> given{matrix, depth, width, row_stride, column_stride};
  if (is_paired && has_pairs()) {
    pack(given, true, reinterpret_cast<Pair*>(panels));
  } else {
    pack(given, is_paired, panels);
  }
}

template <typename T>
int64_t multiply_workspace(const Product<T>& product, int num_threads) {
  return num_threads * thread_workspace(product);
}

template <typename T>
void multiply(const Product<T>& product, T* workspace) {
  const int64_t num_tasks = (product.num_rows + kTaskRows - 1) / kTaskRows;
  const int64_t thread_size = thread_workspace(product);
#pragma omp parallel for schedule(dynamic) if (num_tasks > 1)
  for (int64_t task = 0; task < num_tasks; ++task) {
    const int64_t begin = task * kTaskRows;
    const int64_t end = std::min(product.num_rows, begin + kTaskRows);
    multiply_task(product, begin, end, workspace + omp_get_thread_num() * thread_size);
  }
}

#define DISTGNN_GEMM(T)                                                                       \
  template int64_t panels_size<T>(int64_t, int64_t, bool);                                    \
  template void pack_panels(const T*, int64_t, int64_t, int64_t, int64_t, bool, T*);          \
  template int64_t multiply_workspace(const Product<T>&, int);                                \
  template void multiply(const Product<T>&, T*);
DISTGNN_GEMM(float)
DISTGNN_GEMM(double)

}  // namespace distgnn
