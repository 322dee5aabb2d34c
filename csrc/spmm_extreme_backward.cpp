#include "isa.h"
#include "passes.h"
#include "spmm_extreme.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// Edges per row up to which the backward reads a result for every edge instead of adding every
// result where it belongs. Measured on two Zen 5 cores: at 13 edges reading takes 0.5 to 0.9 of the
// time of adding, at 45 edges 2 to 2.8 times as long, at 400 edges 7 to 12 times.
constexpr int64_t kGatherDegree = 24;
// Columns of out that one thread of the backward owns: a cache line of floats.
constexpr int64_t kOwnedColumns = 16;
// Rows of grad between the prefetch of a row of out and its use.
constexpr int64_t kRowsAhead = 4;

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

struct Owned {
  int64_t first_column;
  int64_t end_column;
  int64_t first_row;
  int64_t end_row;
};

template <typename T>
void add_owned(const ExtremeGrad<T>& grad, int64_t width, const Owned& owned, T* out) {
  const int64_t columns = owned.end_column - owned.first_column;
  // What another thread owns is added here, because a branch would go wrong every other time.
  T elsewhere[kOwnedColumns] = {};
  const auto place = [&](int32_t source, int64_t j) {
    const int64_t row = static_cast<int64_t>(source) - grad.first_source;
    T* mine = out + row * width + owned.first_column + j;
    return row >= owned.first_row && row < owned.end_row ? mine : elsewhere + j;
  };
  for (int64_t v = 0; v < grad.num_rows; ++v) {
    const int32_t* sources = grad.source + v * width + owned.first_column;
    const int32_t* coming = v + kRowsAhead < grad.num_rows ? sources + kRowsAhead * width : sources;
    const T* values = grad.value + v * width + owned.first_column;
    for (int64_t j = 0; j < columns; ++j) __builtin_prefetch(place(coming[j], j), 1);
    for (int64_t j = 0; j < columns; ++j) *place(sources[j], j) += values[j];
  }
}

template <typename T>
void scatter_extreme(const ExtremeGrad<T>& grad, int64_t num_sources, int64_t width,
                     bool accumulate, T* out) {
  const int64_t num_groups = (width + kOwnedColumns - 1) / kOwnedColumns;
  const int64_t threads = num_threads();
  // Only where there are fewer groups of columns than threads are the rows divided too.
  const int64_t num_ranges = num_groups == 0 ? 0 : (threads + num_groups - 1) / num_groups;
  const int64_t num_units = num_groups * num_ranges;
#pragma omp parallel for schedule(dynamic) if (num_units > 1)
  for (int64_t unit = 0; unit < num_units; ++unit) {
    const int64_t group = unit / num_ranges, range = unit % num_ranges;
    const Owned owned{group * kOwnedColumns, std::min(width, (group + 1) * kOwnedColumns),
                      num_sources * range / num_ranges, num_sources * (range + 1) / num_ranges};
    if (!accumulate) {
      for (int64_t row = owned.first_row; row < owned.end_row; ++row) {
        std::fill(out + row * width + owned.first_column, out + row * width + owned.end_column,
                  T(0));
      }
    }
    add_owned(grad, width, owned, out);
  }
}

}  // namespace

template <typename T>
void spmm_extreme_backward(const CsrView& transpose, const PlanView& plan,
                           const ExtremeGrad<T>& grad, int64_t width, bool accumulate, T* out) {
  if (width < kLanes || transpose.indptr[transpose.num_rows] > kGatherDegree * grad.num_rows) {
    return scatter_extreme(grad, transpose.num_rows, width, accumulate, out);
  }
  const GatherArgs<T> a{Schedule(transpose, plan), grad, width, accumulate, out};
  const int widest = std::max(widest_pass() * 2 / static_cast<int>(sizeof(T)), 2);
  for_tasks(a.schedule, 1, [&](int64_t begin, int64_t end, int, int) {
    for (int64_t column = 0; column < width;) {
      const Pass pass = pass_at(width, column, widest);
      column += pass.last + kLanes;
      gather_columns(a, begin, end, pass);
    }
  });
}

#define DISTGNN_EXTREME(T)                                                                        \
  template void spmm_extreme_backward(const CsrView&, const PlanView&, const ExtremeGrad<T>&,     \
                                      int64_t, bool, T*);
DISTGNN_EXTREME(float)
DISTGNN_EXTREME(double)
#undef DISTGNN_EXTREME

}  // namespace distgnn
