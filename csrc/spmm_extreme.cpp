// Algorithm: the best value and its source stay in registers while a row's edges are walked.
// Formula: out[v] = max or min over k in row v of x[indices[k]]; source[v] = the first that has
//   it.
// Source: Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs", 2017.
#include "spmm_extreme.h"

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "isa.h"
#include "number.h"
#include "passes.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

template <typename T>
struct ExtremeArgs {
  Schedule schedule;
  const T* x;
  int64_t width;
  T* out;
  int32_t* source;
};

// What the values may be. A NaN takes a second comparison.
enum Kind { kMax, kMin, kMaxOrNan, kMinOrNan };

template <typename T>
struct Bits {
  using type = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
};

}  // namespace
}  // namespace distgnn

#define DISTGNN_BODY "spmm_extreme_pass.inc"
#include "per_isa.h"

namespace distgnn {
namespace {

template <int kKind, typename T>
void extreme_columns(const ExtremeArgs<T>& a, int64_t begin, int64_t end, const Pass& pass) {
  DISTGNN_BEST(extreme_columns<kKind>(a, begin, end, pass));
}

template <int kKind, typename T>
DISTGNN_INLINE bool wins_over(T value, T best) {
  if (kKind == kMax) return value > best;
  if (kKind == kMin) return value < best;
  // Neither comparison is true for a NaN, which therefore wins and stays.
  const bool is_not_worse = kKind == kMaxOrNan ? !(value <= best) : !(value >= best);
  return is_not_worse & (best == best);
}

// Rows narrower than a vector, column by column.
template <int kKind, typename T>
DISTGNN_PER_ISA void extreme_narrow(const ExtremeArgs<T>& a, int64_t begin, int64_t end) {
  const int32_t* indices = a.schedule.indices;
  const int64_t wanted = prefetch_distance(a.width * static_cast<int64_t>(sizeof(T)));
  for (int64_t i = begin; i < end; ++i) {
    const Segment s = a.schedule.segment(i);
    const int64_t distance = a.schedule.distance(s.end, wanted);
    T* out = a.out + s.row * a.width;
    int32_t* winners = a.source + s.row * a.width;
    int64_t k = s.begin;
    if (s.starts) {
      const int32_t first = k == s.end ? -1 : indices[k];
      for (int64_t j = 0; j < a.width; ++j) {
        out[j] = first < 0 ? T(0) : a.x[first * a.width + j];
        winners[j] = first;
      }
      k += first < 0 ? 0 : 1;
    }
    for (; k < s.end; ++k) {
      __builtin_prefetch(a.x + indices[k + distance] * a.width);
      const T* values = a.x + indices[k] * a.width;
      for (int64_t j = 0; j < a.width; ++j) {
        const bool wins = wins_over<kKind>(values[j], out[j]);
        out[j] = wins ? values[j] : out[j];
        winners[j] = wins ? indices[k] : winners[j];
      }
    }
  }
}

template <int kKind, typename T>
void extreme(const ExtremeArgs<T>& a) {
  if (a.width < kLanes) {
    for_tasks(a.schedule, 1, [&](int64_t begin, int64_t end, int, int) {
      extreme_narrow<kKind>(a, begin, end);
    });
    return;
  }
  // Values and winners share the registers.
  const int widest = std::max(widest_pass() * 2 / static_cast<int>(sizeof(T)), 2);
  const int num_groups = static_cast<int>(std::min<int64_t>((a.width + 31) / 32, 8));
  for_tasks(a.schedule, num_groups, [&](int64_t begin, int64_t end, int part, int num_parts) {
    int number = 0;
    for (int64_t column = 0; column < a.width; ++number) {
      const Pass pass = pass_at(a.width, column, num_parts > 1 ? 2 : widest);
      column += pass.last + kLanes;
      if (number % num_parts == part) extreme_columns<kKind>(a, begin, end, pass);
    }
  });
}

template <typename T>
DISTGNN_PER_ISA bool holds_nan(const T* x, int64_t begin, int64_t end) {
  int found = 0;
#pragma omp simd reduction(| : found)
  for (int64_t i = begin; i < end; ++i) found |= x[i] != x[i];
  return found != 0;
}

template <typename T>
bool has_nan(const T* x, int64_t num_rows, int64_t width) {
  int found = 0;
  const int64_t num_blocks = (num_rows + kRowsPerTask - 1) / kRowsPerTask;
#pragma omp parallel for schedule(static) reduction(| : found) if (num_blocks > 1)
  for (int64_t block = 0; block < num_blocks; ++block) {
    const int64_t begin = block * kRowsPerTask;
    found |= holds_nan(x, begin * width, std::min(num_rows, begin + kRowsPerTask) * width);
  }
  return found != 0;
}

}  // namespace

template <typename T>
void spmm_extreme(const CsrView& graph, const WalkOrderView& walk, const T* x, int64_t num_sources,
                  int64_t width, bool is_max, T* out, int32_t* source) {
  const ExtremeArgs<T> a{Schedule(graph, walk), x, width, out, source};
  if (has_nan(x, num_sources, width)) {
    is_max ? extreme<kMaxOrNan>(a) : extreme<kMinOrNan>(a);
  } else {
    is_max ? extreme<kMax>(a) : extreme<kMin>(a);
  }
}

#define DISTGNN_EXTREME(T)                                                                     \
  template void spmm_extreme(const CsrView&, const WalkOrderView&, const T*, int64_t, int64_t, \
                             bool, T*, int32_t*);
DISTGNN_EXTREME(float)
DISTGNN_EXTREME(double)
#undef DISTGNN_EXTREME

}  // namespace distgnn
