// Algorithm: columns stay in registers while a row's edges are walked in a given order.
// Formula: out[v] = row_factor[v] * sum over k in row v of weight[k] * x[indices[k]].
// Source: Md et al., "DistGNN", SC 2021: blocked aggregation with balanced threads.
#include <cstddef>
#include <cstring>
#include <utility>

#include "isa.h"
#include "number.h"
#include "passes.h"
#include "spmm.h"
#include "tile.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// X: as the source rows are stored, T: as they are added, O: as the sums are stored.
template <typename X, typename T, typename O>
struct SumArgs {
  Schedule schedule;
  SumFactors<T> factors;
  const X* x;
  int64_t width;
  bool accumulate;
  O* out;
};

template <typename T>
bool is_weighted(const SumFactors<T>& factors) {
  return factors.edge != nullptr || factors.source != nullptr;
}

// What the source rows of a segment are multiplied with.
template <typename T>
struct Weights {
  const T* values;
  bool is_by_source;
  DISTGNN_INLINE T of(int64_t k, int32_t source) const { return values[is_by_source ? source : k]; }
};
template <typename T>
DISTGNN_INLINE Weights<T> weights_of(const SumFactors<T>& factors, const Segment& s) {
  if (factors.source != nullptr) return {factors.source, true};
  return {factors.edge + (s.edge - s.begin), false};
}

// The factors of a segment, up to where the processor's prefetcher has noticed the stream.
template <typename T>
DISTGNN_INLINE void prefetch_factors(const T* factors, const Segment& s) {
  constexpr int64_t kPerLine = 64 / sizeof(T);
  const int64_t count = std::min<int64_t>(s.end - s.begin, 4 * kPerLine);
  for (int64_t k = 0; k < count; k += kPerLine) __builtin_prefetch(factors + s.edge + k);
}

}  // namespace
}  // namespace distgnn

#define DISTGNN_BODY "spmm_sum_pass.inc"
#include "per_isa.h"

namespace distgnn {
namespace {

template <int kColumns, typename X, typename T, typename O>
void sum_columns(const SumArgs<X, T, O>& a, int64_t begin, int64_t end, const Pass& pass) {
  DISTGNN_BEST(sum_columns<kColumns>(a, begin, end, pass));
}

// Rows of at least kColumns columns, in passes of units of so many.
template <int kColumns, typename X, typename T, typename O>
void sum_wide(const SumArgs<X, T, O>& a) {
  // A double takes twice the registers of a float, a unit of 32 columns those of two of 16.
  const int registers = kColumns / kLanes * static_cast<int>(sizeof(T));
  const int widest = std::max(widest_pass() * 4 / registers, 2);
  const int num_groups = static_cast<int>(std::min<int64_t>((a.width + 31) / 32, 8));
  for_tasks(a.schedule, num_groups, [&](int64_t begin, int64_t end, int part, int num_parts) {
    int number = 0;
    for (int64_t column = 0; column < a.width; ++number) {
      const Pass pass = pass_at(a.width, column, num_parts > 1 ? 2 : widest, kColumns);
      column += pass.last + kColumns;
      if (number % num_parts == part) sum_columns<kColumns>(a, begin, end, pass);
    }
  });
}

// Rows narrower than a vector: tiles of 4 columns and of 1.
template <bool kWeighted, typename X, typename T, typename O>
DISTGNN_PER_ISA void sum_narrow(const SumArgs<X, T, O>& a, int64_t begin, int64_t end) {
  const int32_t* indices = a.schedule.indices;
  const int64_t wanted = prefetch_distance(a.width * static_cast<int64_t>(sizeof(X)));
  for (int64_t i = begin; i < end; ++i) {
    const Segment s = a.schedule.segment(i);
    const int64_t distance = a.schedule.distance(s.end, wanted);
    const Weights<T> weights = kWeighted ? weights_of(a.factors, s) : Weights<T>{};
    const T row_factor = a.factors.row != nullptr && s.ends ? a.factors.row[s.row] : T(1);
    for_tiles<16>(a.width, [&](auto tile) DISTGNN_LAMBDA_INLINE {
      constexpr int kColumns = tile.kNumColumns;
      const X* x = a.x + tile.column;
      O* out = a.out + s.row * a.width + tile.column;
      T total[kColumns];
      for (int j = 0; j < kColumns; ++j) {
        total[j] = s.starts && !a.accumulate ? T(0) : widen(out[j]);
      }
      for (int64_t k = s.begin; k < s.end; ++k) {
        __builtin_prefetch(x + indices[k + distance] * a.width);
        const X* source = x + indices[k] * a.width;
        const T factor = kWeighted ? weights.of(k, indices[k]) : T(1);
#pragma omp simd
        for (int j = 0; j < kColumns; ++j) {
          total[j] += kWeighted ? factor * widen(source[j]) : widen(source[j]);
        }
      }
      if (a.factors.row != nullptr && s.ends) {
        for (int j = 0; j < kColumns; ++j) total[j] *= row_factor;
      }
      for (int j = tile.skip; j < kColumns; ++j) store(total[j], out + j);
    });
  }
}

}  // namespace

template <typename X, typename T, typename O>
void spmm_sum(const CsrView& graph, const WalkOrderView& walk, const SumFactors<T>& factors,
              const X* x, int64_t width, bool accumulate, O* out) {
  const bool is_cut = walk.row != nullptr && walk.task[walk.num_tasks] != graph.num_rows;
  const bool is_rounded_between = is_cut && sizeof(O) < sizeof(T);
  const Schedule schedule(graph, is_rounded_between ? WalkOrderView{} : walk);
  const SumArgs<X, T, O> a{schedule, factors, x, width, accumulate, out};
  if (width < kLanes) {
    for_tasks(a.schedule, 1, [&](int64_t begin, int64_t end, int, int) {
      if (!is_weighted(factors)) {
        sum_narrow<false>(a, begin, end);
      } else {
        sum_narrow<true>(a, begin, end);
      }
    });
    return;
  }
  // A load of bfloat16 holds 32 columns.
  if (sizeof(X) == 2 && width >= 2 * kLanes) return sum_wide<2 * kLanes>(a);
  sum_wide<kLanes>(a);
}

#define DISTGNN_SUM(X, T, O)                                                                   \
  template void spmm_sum(const CsrView&, const WalkOrderView&, const SumFactors<T>&, const X*, \
                         int64_t, bool, O*);
DISTGNN_SUM(float, float, float)
DISTGNN_SUM(double, double, double)
DISTGNN_SUM(Bf16, float, float)
DISTGNN_SUM(Bf16, float, Bf16)
#undef DISTGNN_SUM

}  // namespace distgnn
