#include <limits>

#include "isa.h"
#include "spmm.h"
#include "tile.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// A tile of the forward keeps three arrays in registers, one of the backward reads two rows.
constexpr int kForwardColumns = 16;
constexpr int kBackwardColumns = 32;
constexpr int64_t kNoKey = std::numeric_limits<int64_t>::max();

template <typename T>
struct MaxArgs {
  CsrView graph;
  const int64_t* key;
  const T* x;
  int64_t width;
  int64_t edge_offset;
  MaxState<T> out;
};

// kMerge: the tile starts from the state in out. Without it a later edge of this row can never
// have the smaller position, so that equal keys need no look at the positions.
template <bool kMerge, typename T, int kColumns>
DISTGNN_INLINE void max_tile(const MaxArgs<T>& a, int64_t row, Tile<kColumns> tile) {
  const int32_t* indices = a.graph.indices;
  const T* x = a.x + tile.column;
  const int64_t first_out = row * a.width + tile.column;
  const int64_t last_edge = a.graph.indptr[a.graph.num_rows] - 1;
  const int64_t end = a.graph.indptr[row + 1];

  T best[kColumns];
  int64_t arg[kColumns];
  int64_t arg_key[kColumns];
  for (int j = 0; j < kColumns; ++j) {
    const bool is_seen = kMerge && a.out.arg[first_out + j] >= 0;
    best[j] = is_seen ? a.out.value[first_out + j] : -std::numeric_limits<T>::infinity();
    arg[j] = is_seen ? a.out.arg[first_out + j] : -1;
    arg_key[j] = is_seen ? a.out.arg_key[first_out + j] : kNoKey;
  }
  for (int64_t k = a.graph.indptr[row]; k < end; ++k) {
    const int64_t coming = indices[std::min(k + kPrefetchDistance, last_edge)];
    prefetch_tile<kColumns>(x + coming * a.width);
    __builtin_prefetch(a.key + coming);
    const T* source = x + indices[k] * a.width;
    const int64_t key = a.key[indices[k]];
    const int64_t edge = a.edge_offset + k;
#pragma omp simd
    for (int j = 0; j < kColumns; ++j) {
      // Bitwise operators: a branch on any of these would keep the loop out of vector registers.
      const T value = source[j];
      const bool is_nan = value != value;
      const bool is_best_nan = best[j] != best[j];
      const bool is_larger = (value > best[j]) | (is_nan & !is_best_nan);
      const bool is_equal = (value == best[j]) | (is_nan & is_best_nan);
      bool is_first = key < arg_key[j];
      if (kMerge) is_first |= (key == arg_key[j]) & (edge < arg[j]);
      const bool is_winner = is_larger | (is_equal & is_first);
      best[j] = is_winner ? value : best[j];
      arg[j] = is_winner ? edge : arg[j];
      arg_key[j] = is_winner ? key : arg_key[j];
    }
  }
  for (int j = tile.skip; j < kColumns; ++j) {
    a.out.value[first_out + j] = arg[j] < 0 ? T(0) : best[j];
    a.out.arg[first_out + j] = arg[j];
    a.out.arg_key[first_out + j] = arg_key[j];
  }
}

template <bool kMerge, typename T>
DISTGNN_PER_ISA void max_rows(const MaxArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    for_tiles<kForwardColumns>(a.width, [&](auto tile) DISTGNN_LAMBDA_INLINE {
      max_tile<kMerge>(a, row, tile);
    });
  }
}

template <typename T>
struct MaxBackwardArgs {
  CsrView transpose;
  const int64_t* edge;
  const int64_t* arg;
  const T* grad;
  int64_t width;
  int64_t edge_offset;
  bool accumulate;
  T* out;
};

template <typename T, int kColumns>
DISTGNN_INLINE void max_backward_tile(const MaxBackwardArgs<T>& a, int64_t row,
                                      Tile<kColumns> tile) {
  const int32_t* indices = a.transpose.indices;
  const T* grad = a.grad + tile.column;
  const int64_t* arg = a.arg + tile.column;
  T* out = a.out + row * a.width + tile.column;
  const int64_t last_edge = a.transpose.indptr[a.transpose.num_rows] - 1;
  const int64_t end = a.transpose.indptr[row + 1];

  T total[kColumns];
  for (int j = 0; j < kColumns; ++j) total[j] = a.accumulate ? out[j] : T(0);
  for (int64_t k = a.transpose.indptr[row]; k < end; ++k) {
    const int64_t coming = indices[std::min(k + kPrefetchDistance, last_edge)] * a.width;
    prefetch_tile<kColumns>(grad + coming);
    prefetch_tile<kColumns>(arg + coming);
    const int64_t first = indices[k] * a.width;
    const int64_t edge = a.edge_offset + a.edge[k];
#pragma omp simd
    for (int j = 0; j < kColumns; ++j) {
      total[j] += arg[first + j] == edge ? grad[first + j] : T(0);
    }
  }
  for (int j = tile.skip; j < kColumns; ++j) out[j] = total[j];
}

template <typename T>
DISTGNN_PER_ISA void max_backward_rows(const MaxBackwardArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    for_tiles<kBackwardColumns>(a.width, [&](auto tile) DISTGNN_LAMBDA_INLINE {
      max_backward_tile(a, row, tile);
    });
  }
}

}  // namespace

template <typename T>
void spmm_max(const CsrView& graph, const int64_t* key, const T* x, int64_t width,
              int64_t edge_offset, bool accumulate, const MaxState<T>& out) {
  const MaxArgs<T> a{graph, key, x, width, edge_offset, out};
  for_row_blocks(graph.num_rows, [&](int64_t begin, int64_t end) {
    if (accumulate) {
      max_rows<true>(a, begin, end);
    } else {
      max_rows<false>(a, begin, end);
    }
  });
}

template <typename T>
void spmm_max_backward(const CsrView& transpose, const int64_t* edge, const int64_t* arg,
                       const T* grad, int64_t width, int64_t edge_offset, bool accumulate,
                       T* out) {
  const MaxBackwardArgs<T> a{transpose, edge, arg, grad, width, edge_offset, accumulate, out};
  for_row_blocks(transpose.num_rows,
                 [&](int64_t begin, int64_t end) { max_backward_rows(a, begin, end); });
}

template void spmm_max(const CsrView&, const int64_t*, const float*, int64_t, int64_t, bool,
                       const MaxState<float>&);
template void spmm_max(const CsrView&, const int64_t*, const double*, int64_t, int64_t, bool,
                       const MaxState<double>&);
template void spmm_max_backward(const CsrView&, const int64_t*, const int64_t*, const float*,
                                int64_t, int64_t, bool, float*);
template void spmm_max_backward(const CsrView&, const int64_t*, const int64_t*, const double*,
                                int64_t, int64_t, bool, double*);

}  // namespace distgnn
