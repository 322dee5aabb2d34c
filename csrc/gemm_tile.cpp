// Algorithm: the innermost loops of products, compiled once per instruction set.
// Formula: sums[r][c] = fma(x[r][k], w[k][c], sums[r][c]) in the order of k.
// Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
#include "gemm_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstring>
#include <type_traits>
#include <utility>

namespace {
using std::int64_t;
}

#define DISTGNN_BODY "gemm_tile.inc"
#include "per_isa.h"

namespace distgnn {

int rows_of_tile(int num_vectors) {
  DISTGNN_BEST(rows_of_tile(num_vectors));
}

template <typename E, typename T>
void walk_depth(const E* const* x, const DepthWalk<E, T>& walk) {
  DISTGNN_BEST(walk_depth(x, walk));
}
template <typename E, typename T>
void walk_rows(const RowWalk<E, T>& walk) {
  DISTGNN_BEST(walk_rows(walk));
}

template void walk_depth(const float* const*, const DepthWalk<float, float>&);
template void walk_depth(const double* const*, const DepthWalk<double, double>&);
template void walk_rows(const RowWalk<float, float>&);
template void walk_rows(const RowWalk<double, double>&);

// Pairs are walked by the widest code alone: see has_pairs.
#if defined(DISTGNN_HAS_CLONES) && __GNUC__ >= 12
#define DISTGNN_OF_PAIRS v4
#else
#define DISTGNN_OF_PAIRS baseline
#endif
template <>
void walk_depth(const Pair* const* x, const DepthWalk<Pair, float>& walk) {
  DISTGNN_OF_PAIRS::walk_depth(x, walk);
}
template <>
void walk_rows(const RowWalk<Pair, float>& walk) {
  DISTGNN_OF_PAIRS::walk_rows(walk);
}

}  // namespace distgnn
