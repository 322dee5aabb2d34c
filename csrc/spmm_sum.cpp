#include "spmm.h"

#include "isa.h"
#include "tile.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

template <typename T>
struct SumArgs {
  CsrView graph;
  const T* weight;
  const T* x;
  int64_t width;
  bool accumulate;
  T* out;
};

template <bool kWeighted, typename T, int kColumns>
DISTGNN_INLINE void sum_tile(const SumArgs<T>& a, int64_t row, Tile<kColumns> tile) {
  const int32_t* indices = a.graph.indices;
  const T* x = a.x + tile.column;
  T* out = a.out + row * a.width + tile.column;
  const int64_t last_edge = a.graph.indptr[a.graph.num_rows] - 1;
  const int64_t end = a.graph.indptr[row + 1];

  T total[kColumns];
  for (int j = 0; j < kColumns; ++j) total[j] = a.accumulate ? out[j] : T(0);
  for (int64_t k = a.graph.indptr[row]; k < end; ++k) {
    const int64_t coming = std::min(k + kPrefetchDistance, last_edge);
    prefetch_tile<kColumns>(x + indices[coming] * a.width);
    const T* source = x + indices[k] * a.width;
    const T weight = kWeighted ? a.weight[k] : T(1);
#pragma omp simd
    for (int j = 0; j < kColumns; ++j) {
      total[j] += kWeighted ? weight * source[j] : source[j];
    }
  }
  for (int j = tile.skip; j < kColumns; ++j) out[j] = total[j];
}

template <bool kWeighted, typename T>
DISTGNN_PER_ISA void sum_rows(const SumArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    for_tiles<256 / sizeof(T)>(a.width, [&](auto tile) DISTGNN_LAMBDA_INLINE {
      sum_tile<kWeighted>(a, row, tile);
    });
  }
}

}  // namespace

template <typename T>
void spmm_sum(const CsrView& graph, const T* weight, const T* x, int64_t width, bool accumulate,
              T* out) {
  const SumArgs<T> a{graph, weight, x, width, accumulate, out};
  for_row_blocks(graph.num_rows, [&](int64_t begin, int64_t end) {
    if (weight == nullptr) {
      sum_rows<false>(a, begin, end);
    } else {
      sum_rows<true>(a, begin, end);
    }
  });
}

template void spmm_sum(const CsrView&, const float*, const float*, int64_t, bool, float*);
template void spmm_sum(const CsrView&, const double*, const double*, int64_t, bool, double*);

}  // namespace distgnn
