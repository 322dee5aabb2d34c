#include "gemm_tile.h"

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
  if (widest_pass() < 16) return 6;
  return num_vectors <= 2 ? 12 : 8;
}

template <typename E, typename T>
void walk_rows(const E* const* rows, const Walk<E, T>& walk) {
  DISTGNN_BEST(walk_rows(rows, walk));
}
template <typename E, typename T>
void walk_columns(const E* columns, const Walk<E, T>& walk) {
  DISTGNN_BEST(walk_columns(columns, walk));
}

#define DISTGNN_WALKS(E, T)                                           \
  template void walk_rows(const E* const*, const Walk<E, T>&);        \
  template void walk_columns(const E*, const Walk<E, T>&);
DISTGNN_WALKS(float, float)
DISTGNN_WALKS(double, double)

// Rows in pairs are walked by the widest code alone: see has_pairs.
#if defined(DISTGNN_HAS_CLONES) && __GNUC__ >= 12
#define DISTGNN_OF_PAIRS v4
#else
#define DISTGNN_OF_PAIRS baseline
#endif
template <>
void walk_rows(const Pair* const* rows, const Walk<Pair, float>& walk) {
  DISTGNN_OF_PAIRS::walk_rows(rows, walk);
}
template <>
void walk_columns(const Pair* columns, const Walk<Pair, float>& walk) {
  DISTGNN_OF_PAIRS::walk_columns(columns, walk);
}

}  // namespace distgnn
