#include "spmm_extreme.h"

#include <cstring>
#include <type_traits>

#include "isa.h"
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

// Edges that a piece of a row must have.
constexpr int64_t kShortPiece = 4;
// What the values may be. A NaN takes a second comparison, which doubles the time of narrow rows.
enum Kind { kMax, kMin, kMaxOrNan, kMinOrNan };

template <int kKind, typename T>
DISTGNN_INLINE bool wins_over(T value, T best) {
  if (kKind == kMax) return value > best;
  if (kKind == kMin) return value < best;
  // Neither comparison is true for a NaN, which therefore wins and stays.
  const bool is_not_worse = kKind == kMaxOrNan ? !(value <= best) : !(value >= best);
  return is_not_worse & (best == best);
}

template <typename T>
struct Bits {
  using type = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
};

// a where the bits of the mask are set, else b.
template <typename T>
DISTGNN_INLINE T select(typename Bits<T>::type mask, T a, T b) {
  typename Bits<T>::type a_bits, b_bits;
  std::memcpy(&a_bits, &a, sizeof(a));
  std::memcpy(&b_bits, &b, sizeof(b));
  a_bits = (a_bits & mask) | (b_bits & ~mask);
  std::memcpy(&a, &a_bits, sizeof(a));
  return a;
}

// One edge on kLanes columns.
template <int kKind, typename T>
DISTGNN_INLINE void take(const T* values, int32_t row, T* best, int32_t* winner) {
#pragma omp simd
  for (int j = 0; j < kLanes; ++j) {
    // Selected by bits: for a conditional, GCC 12 stores under a mask behind a branch on that mask,
    // which no predictor foresees.
    const auto wins = static_cast<typename Bits<T>::type>(-wins_over<kKind>(values[j], best[j]));
    const T value = values[j], old = best[j];
    if (kKind == kMax || kKind == kMin) {
      // One instruction with nothing to wait for but the one before.
      best[j] = kKind == kMax ? (value > old ? value : old) : (value < old ? value : old);
    } else {
      best[j] = select(wins, value, old);
    }
    const auto is_row = static_cast<int32_t>(wins);
    winner[j] = (row & is_row) | (winner[j] & ~is_row);
  }
}

// Takes what later edges found where it is better; where it is equal, the earlier edge has won.
template <int kKind, typename T>
DISTGNN_INLINE void merge(const T* values, const int32_t* rows, T* best, int32_t* winner) {
#pragma omp simd
  for (int j = 0; j < kLanes; ++j) {
    const auto wins = static_cast<typename Bits<T>::type>(-wins_over<kKind>(values[j], best[j]));
    best[j] = select(wins, values[j], best[j]);
    const auto is_row = static_cast<int32_t>(wins);
    winner[j] = (rows[j] & is_row) | (winner[j] & ~is_row);
  }
}

template <int kVectors, int kKind, typename T>
DISTGNN_INLINE void take_edge(const ExtremeArgs<T>& a, const T* x, int64_t last, int64_t k,
                              int64_t distance, T* best, int32_t* winner) {
  constexpr int kLastVector = (kVectors - 1) * kLanes;
  const int32_t* indices = a.schedule.indices;
  const T* coming = x + indices[k + distance] * a.width;
  for (int j = 0; j < kVectors * kLanes; j += 64 / sizeof(T)) __builtin_prefetch(coming + j);
  const T* values = x + indices[k] * a.width;
  for (int j = 0; j < kLastVector; j += kLanes) {
    take<kKind>(values + j, indices[k], best + j, winner + j);
  }
  take<kKind>(values + last, indices[k], best + kLastVector, winner + kLastVector);
}

template <int kVectors, int kKind, typename T>
DISTGNN_PER_ISA void extreme_pass(const ExtremeArgs<T>& a, int64_t begin, int64_t end, Pass pass) {
  constexpr int kColumns = kVectors * kLanes;
  // A comparison waits for the one before: where vectors are few, pieces of a row take turns.
  constexpr int kChains = kVectors == 1 ? 4 : kVectors <= 4 ? 2 : 1;
  const int32_t* indices = a.schedule.indices;
  const T* x = a.x + pass.column;
  const int64_t wanted = prefetch_distance(a.width * static_cast<int64_t>(sizeof(T)));
  int64_t start[kVectors];
  for (int i = 0; i < kVectors; ++i) start[i] = i == kVectors - 1 ? pass.last : i * kLanes;
  for (int64_t i = begin; i < end; ++i) {
    const Segment s = a.schedule.segment(i);
    const int64_t distance = a.schedule.distance(s.end, wanted);
    // Rows in the order of a plan are out of sight of the processor's own prefetcher.
    const int64_t ahead = std::min(i + kSegmentsAhead, end - 1);
    const int64_t coming = a.schedule.segment(ahead).row * a.width + pass.column;
    for (int j = 0; j < kColumns; j += 64 / sizeof(T)) __builtin_prefetch(a.out + coming + j, 1);
    for (int j = 0; j < kColumns; j += 16) __builtin_prefetch(a.source + coming + j, 1);
    T* out = a.out + s.row * a.width + pass.column;
    int32_t* winners = a.source + s.row * a.width + pass.column;
    T best[kColumns];
    int32_t winner[kColumns];
    int64_t k = s.begin;
    if (s.starts) {
      const bool is_empty = k == s.end;
      const int32_t first = is_empty ? -1 : indices[k];
      const T* values = x + (is_empty ? 0 : first) * a.width;
      for (int v = 0; v < kVectors; ++v) {
#pragma omp simd
        for (int j = 0; j < kLanes; ++j) {
          best[v * kLanes + j] = is_empty ? T(0) : values[start[v] + j];
          winner[v * kLanes + j] = first;
        }
      }
      k += is_empty ? 0 : 1;
    } else {
      for (int v = 0; v < kVectors; ++v) {
#pragma omp simd
        for (int j = 0; j < kLanes; ++j) {
          best[v * kLanes + j] = out[start[v] + j];
          winner[v * kLanes + j] = winners[start[v] + j];
        }
      }
    }
    const int64_t piece = s.end - k >= kShortPiece * kChains ? (s.end - k) / kChains : 0;
    if (kChains > 1 && piece > 0) {
      T other_best[(kChains - 1) * kColumns + 1];
      int32_t other_winner[(kChains - 1) * kColumns + 1];
      for (int v = 0; v < (kChains - 1) * kVectors; ++v) {
#pragma omp simd
        for (int j = 0; j < kLanes; ++j) {
          other_best[v * kLanes + j] = best[v % kVectors * kLanes + j];
          other_winner[v * kLanes + j] = winner[v % kVectors * kLanes + j];
        }
      }
      for (const int64_t piece_end = k + piece; k < piece_end; ++k) {
        take_edge<kVectors, kKind>(a, x, pass.last, k, distance, best, winner);
        for (int c = 1; c < kChains; ++c) {
          take_edge<kVectors, kKind>(a, x, pass.last, k + c * piece, distance,
                                     other_best + (c - 1) * kColumns,
                                     other_winner + (c - 1) * kColumns);
        }
      }
      k += (kChains - 1) * piece;
      for (int v = 0; v < (kChains - 1) * kVectors; ++v) {
        merge<kKind>(other_best + v * kLanes, other_winner + v * kLanes,
                     best + v % kVectors * kLanes, winner + v % kVectors * kLanes);
      }
    }
    for (; k < s.end; ++k) {
      take_edge<kVectors, kKind>(a, x, pass.last, k, distance, best, winner);
    }
    for (int v = 0; v < kVectors; ++v) {
#pragma omp simd
      for (int j = 0; j < kLanes; ++j) {
        out[start[v] + j] = best[v * kLanes + j];
        winners[start[v] + j] = winner[v * kLanes + j];
      }
    }
  }
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
void extreme_columns(const ExtremeArgs<T>& a, int64_t begin, int64_t end, const Pass& pass) {
  switch (pass.num_vectors) {
    case 1: return extreme_pass<1, kKind>(a, begin, end, pass);
    case 2: return extreme_pass<2, kKind>(a, begin, end, pass);
    case 3: return extreme_pass<3, kKind>(a, begin, end, pass);
    case 4: return extreme_pass<4, kKind>(a, begin, end, pass);
    case 5: return extreme_pass<5, kKind>(a, begin, end, pass);
    case 6: return extreme_pass<6, kKind>(a, begin, end, pass);
    case 7: return extreme_pass<7, kKind>(a, begin, end, pass);
    default: return extreme_pass<8, kKind>(a, begin, end, pass);
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
void spmm_extreme(const CsrView& graph, const PlanView& plan, const T* x, int64_t num_sources,
                  int64_t width, bool is_max, T* out, int32_t* source) {
  const ExtremeArgs<T> a{Schedule(graph, plan), x, width, out, source};
  if (has_nan(x, num_sources, width)) {
    is_max ? extreme<kMaxOrNan>(a) : extreme<kMinOrNan>(a);
  } else {
    is_max ? extreme<kMax>(a) : extreme<kMin>(a);
  }
}

#define DISTGNN_EXTREME(T)                                                                      \
  template void spmm_extreme(const CsrView&, const PlanView&, const T*, int64_t, int64_t, bool, \
                             T*, int32_t*);
DISTGNN_EXTREME(float)
DISTGNN_EXTREME(double)
#undef DISTGNN_EXTREME

}  // namespace distgnn
