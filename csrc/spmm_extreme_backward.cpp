// Algorithm: few edges are gathered, many results are scattered by owners of columns.
// Formula: out[source[v, j], j] += grad[v, j].
// Source: ours; which way is faster is measured, see below.
#include <omp.h>

#include "isa.h"
#include "passes.h"
#include "spmm_extreme.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

// Edges per row up to which the backward reads a result for every edge instead of adding every
// result where it belongs. Measured on two Zen 5 cores: at 13 edges adding takes 0.4 to 0.8 of the
// time of reading where ids are random, 0.5 to 1.15 where they are ordered; at 50 edges much less.
constexpr int64_t kGatherDegree = 12;
// Columns of out that one thread of the backward owns, at most and at least: a cache line of
// floats.
constexpr int64_t kOwnedColumns = 16;
constexpr int64_t kLeastColumns = 4;
// Rows of grad between the prefetch of a row of out and its use.
constexpr int64_t kRowsAhead = 4;
// Rows of grad between the prefetch of a row of it and its use.
constexpr int64_t kRowsRead = 24;

template <typename T>
struct GatherArgs {
  Schedule schedule;
  ExtremeGrad<T> grad;
  int64_t width;
  bool accumulate;
  T* out;
};

// Backward by rows of out: of each result that row u went into, the gradient if it came from u.
template <int kVectors, typename T>
DISTGNN_PER_ISA void gather_pass(const GatherArgs<T>& a, int64_t begin, int64_t end, Pass pass) {
  constexpr int kPerLine = 64 / sizeof(T);
  const int32_t* indices = a.schedule.indices;
  const T* grad = a.grad.value + pass.column;
  const int32_t* source = a.grad.source + pass.column;
  const int64_t wanted = prefetch_distance(a.width * static_cast<int64_t>(4 + sizeof(T)));
  int64_t start[kVectors];
  for (int i = 0; i < kVectors; ++i) start[i] = i == kVectors - 1 ? pass.last : i * kLanes;
  for (int64_t i = begin; i < end; ++i) {
    const Segment s = a.schedule.segment(i);
    const int64_t distance = a.schedule.distance(s.end, wanted);
    T* out = a.out + s.row * a.width + pass.column;
    const auto row = static_cast<int32_t>(s.row + a.grad.first_source);
    T total[kVectors * kLanes];
    for (int v = 0; v < kVectors; ++v) {
#pragma omp simd
      for (int j = 0; j < kLanes; ++j) {
        total[v * kLanes + j] = s.starts && !a.accumulate ? T(0) : out[start[v] + j];
      }
    }
    int32_t before = -1;
    for (int64_t k = s.begin; k < s.end; ++k) {
      const int64_t coming = indices[k + distance] * a.width;
      for (int j = 0; j < kVectors * kLanes; j += kPerLine) __builtin_prefetch(grad + coming + j);
      for (int j = 0; j < kVectors * kLanes; j += 16) __builtin_prefetch(source + coming + j);
      // Of parallel edges only one can have won.
      if (indices[k] == before) continue;
      before = indices[k];
      const int64_t first = before * a.width;
      for (int v = 0; v < kVectors; ++v) {
        const int64_t at = first + (v == kVectors - 1 ? pass.last : v * kLanes);
#pragma omp simd
        for (int j = 0; j < kLanes; ++j) {
          total[v * kLanes + j] += source[at + j] == row ? grad[at + j] : T(0);
        }
      }
    }
    for (int v = 0; v < kVectors; ++v) {
#pragma omp simd
      for (int j = 0; j < kLanes; ++j) out[start[v] + j] = total[v * kLanes + j];
    }
  }
}

template <typename T>
void gather_columns(const GatherArgs<T>& a, int64_t begin, int64_t end, const Pass& pass) {
  switch (pass.num_vectors) {
    case 1: return gather_pass<1>(a, begin, end, pass);
    case 2: return gather_pass<2>(a, begin, end, pass);
    case 3: return gather_pass<3>(a, begin, end, pass);
    case 4: return gather_pass<4>(a, begin, end, pass);
    case 5: return gather_pass<5>(a, begin, end, pass);
    case 6: return gather_pass<6>(a, begin, end, pass);
    case 7: return gather_pass<7>(a, begin, end, pass);
    default: return gather_pass<8>(a, begin, end, pass);
  }
}

// How the scatter is divided: a thread adds all rows, in the columns that it owns. Dividing the
// rows of out instead has each thread meet sources that are not its own, half of the time and at
// random: with two threads that took 7 times as long as one.
struct Division {
  int64_t columns;
  int64_t num_groups;
  int64_t num_threads;

  explicit Division(int64_t width) {
    const int64_t threads = distgnn::num_threads();
    columns = std::min(kOwnedColumns, std::max(kLeastColumns, (width + threads - 1) / threads));
    num_groups = (width + columns - 1) / columns;
    num_threads = std::min(threads, num_groups);
  }
};

// A slab holds the owned columns of out, its rows close together: in out itself they would be a
// whole row apart, and share a few sets of the caches.
template <typename T>
void add_owned(const ExtremeGrad<T>& grad, int64_t num_sources, int64_t width, int64_t first,
               int64_t columns, T* slab) {
  // Sources that are not among these rows are few; a sum that nobody reads takes theirs.
  T elsewhere[kOwnedColumns] = {};
  const auto place = [&](int32_t source, int64_t j) {
    const int64_t row = static_cast<int64_t>(source) - grad.first_source;
    const bool is_here = static_cast<uint64_t>(row) < static_cast<uint64_t>(num_sources);
    return (is_here ? slab + row * columns : elsewhere) + j;
  };
  for (int64_t v = 0; v < grad.num_rows; ++v) {
    const int32_t* sources = grad.source + v * width + first;
    const int32_t* coming = v + kRowsAhead < grad.num_rows ? sources + kRowsAhead * width : sources;
    const T* values = grad.value + v * width + first;
    // A few columns of every row: too far apart for the processor's own prefetcher.
    const int64_t far = std::min(kRowsRead, grad.num_rows - 1 - v) * width;
    __builtin_prefetch(sources + far);
    __builtin_prefetch(sources + far + columns - 1);
    __builtin_prefetch(values + far);
    __builtin_prefetch(values + far + columns - 1);
    for (int64_t j = 0; j < columns; ++j) __builtin_prefetch(place(coming[j], j), 1);
    for (int64_t j = 0; j < columns; ++j) *place(sources[j], j) += values[j];
  }
}

template <typename T>
void scatter_columns(const ExtremeGrad<T>& grad, const Division& division, int64_t group,
                     int64_t num_sources, int64_t width, bool accumulate, T* slab, T* out) {
  const int64_t first = group * division.columns;
  const int64_t columns = std::min(division.columns, width - first);
  out += first;
  if (accumulate) {
    for (int64_t row = 0; row < num_sources; ++row) {
      std::copy_n(out + row * width, columns, slab + row * columns);
    }
  } else {
    std::fill_n(slab, num_sources * columns, T(0));
  }
  add_owned(grad, num_sources, width, first, columns, slab);
  for (int64_t row = 0; row < num_sources; ++row) {
    std::copy_n(slab + row * columns, columns, out + row * width);
  }
}

template <typename T>
void scatter_extreme(const ExtremeGrad<T>& grad, int64_t num_sources, int64_t width,
                     bool accumulate, T* scratch, T* out) {
  const Division division(width);
  const int64_t slab_size = num_sources * division.columns;
#pragma omp parallel for schedule(dynamic) num_threads(division.num_threads) \
    if (division.num_groups > 1)
  for (int64_t group = 0; group < division.num_groups; ++group) {
    T* slab = scratch + omp_get_thread_num() * slab_size;
    scatter_columns(grad, division, group, num_sources, width, accumulate, slab, out);
  }
}

bool is_gathered(const CsrView& transpose, int64_t num_rows, int64_t width) {
  return width >= kLanes && transpose.indptr[transpose.num_rows] <= kGatherDegree * num_rows;
}

}  // namespace

int64_t extreme_scratch(const CsrView& transpose, int64_t num_rows, int64_t width) {
  if (is_gathered(transpose, num_rows, width)) return 0;
  const Division division(width);
  return division.num_threads * transpose.num_rows * division.columns;
}

template <typename T>
void spmm_extreme_backward(const CsrView& transpose, const WalkOrderView& walk,
                           const ExtremeGrad<T>& grad, int64_t width, bool accumulate, T* scratch,
                           T* out) {
  if (!is_gathered(transpose, grad.num_rows, width)) {
    return scatter_extreme(grad, transpose.num_rows, width, accumulate, scratch, out);
  }
  const GatherArgs<T> a{Schedule(transpose, walk), grad, width, accumulate, out};
  const int widest = std::max(widest_pass() * 2 / static_cast<int>(sizeof(T)), 2);
  for_tasks(a.schedule, 1, [&](int64_t begin, int64_t end, int, int) {
    for (int64_t column = 0; column < width;) {
      const Pass pass = pass_at(width, column, widest);
      column += pass.last + kLanes;
      gather_columns(a, begin, end, pass);
    }
  });
}

#define DISTGNN_EXTREME(T)                                                                         \
  template void spmm_extreme_backward(const CsrView&, const WalkOrderView&, const ExtremeGrad<T>&, \
                                      int64_t, bool, T*, T*);
DISTGNN_EXTREME(float)
DISTGNN_EXTREME(double)
#undef DISTGNN_EXTREME

}  // namespace distgnn
