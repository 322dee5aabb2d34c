// Algorithm: one pass over the edges of a row keeps a running maximum, as in online softmax.
// Formula: alpha = softmax over in-edges of leaky_relu(s[u] + t[v]); out[v] = sum of alpha * x[u].
// Source: Velickovic et al., ICLR 2018; Milakov and Gimelshein, "Online normalizer calculation for
//   softmax", 2018.
#include "attention.h"

#include <limits>

#include "exponential.h"
#include "head_sum.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// Weights that a task keeps on its stack: they stay in the level-1 cache.
constexpr int64_t kBufferValues = 2048;

template <typename T>
struct AttendArgs {
  CsrView graph;
  Schedule schedule;
  AttentionScores<T> scores;
  AttentionEdges<T> edges;
  AttentionState<T> state;
  bool accumulate;
};

// The e of the edges of a segment, whose columns are `indices`, kept if kKeep, and per head the
// largest of them. kHeads is the number of heads, or 0 if there is no code for that number.
template <int kHeads, bool kKeep, bool kHasOwn, typename T>
DISTGNN_INLINE void score_edges_as(const AttendArgs<T>& a, const Heads& heads,
                                   const int32_t* indices, const Segment& s, int64_t distance,
                                   T* kept, T* largest) {
  constexpr int kSize = kHeads > 0 ? kHeads : kMaxHeads;
  const int count = kHeads > 0 ? kHeads : static_cast<int>(heads.count);
  const T* source = a.scores.source + heads.begin;
  const T* own = kHasOwn ? a.edges.score + s.edge * heads.all + heads.begin : nullptr;
  const T slope = a.scores.slope;
  // Copies, which no store can change: they stay in registers.
  T target[kSize], best[kSize], e[kSize];
  for (int h = 0; h < count; ++h) {
    target[h] = a.scores.target[s.row * heads.all + heads.begin + h];
    best[h] = -std::numeric_limits<T>::infinity();
  }
  for (int64_t k = s.begin; k < s.end; ++k) {
    __builtin_prefetch(source + indices[k + distance] * heads.all);
    const T* from = source + indices[k] * heads.all;
#pragma omp simd
    for (int h = 0; h < count; ++h) {
      T raw = from[h] + target[h];
      if (kHasOwn) raw += own[h];
      const T scaled = raw * slope;
      e[h] = raw > 0 ? raw : scaled;
      best[h] = e[h] > best[h] ? e[h] : best[h];
    }
    if (kHasOwn) own += heads.all;
    if (kKeep) {
#pragma omp simd
      for (int h = 0; h < count; ++h) kept[h] = e[h];
      kept += count;
    }
  }
  for (int h = 0; h < count; ++h) largest[h] = best[h];
}

template <int kHeads, bool kKeep, typename T>
DISTGNN_INLINE void score_edges(const AttendArgs<T>& a, const Heads& heads, const int32_t* indices,
                                const Segment& s, int64_t distance, T* kept, T* largest) {
  if (a.edges.score == nullptr) {
    score_edges_as<kHeads, kKeep, false>(a, heads, indices, s, distance, kept, largest);
  } else {
    score_edges_as<kHeads, kKeep, true>(a, heads, indices, s, distance, kept, largest);
  }
}

// What is kept of a row beside its sums; `at` is its first head.
template <typename T>
DISTGNN_INLINE void prefetch_row(const AttendArgs<T>& a, int64_t at) {
  __builtin_prefetch(a.scores.target + at);
  __builtin_prefetch(a.state.maximum + at, 1);
  __builtin_prefetch(a.state.denominator + at, 1);
}

// Starts the state of a row whose edges have these largest e: with accumulate, the state already
// there is brought to the common maximum.
template <typename T>
DISTGNN_INLINE void start_row(const AttendArgs<T>& a, const Heads& heads, int64_t row,
                              bool has_edges, T* largest) {
  if (!a.accumulate) {
    T* maximum = a.state.maximum + row * heads.all + heads.begin;
    T* denominator = a.state.denominator + row * heads.all + heads.begin;
    for (int64_t h = 0; h < heads.count; ++h) {
      maximum[h] = has_edges ? largest[h] : T(0);
      denominator[h] = 0;
    }
    return;
  }
  for (int64_t h = 0; h < heads.count; ++h) {
    const int64_t at = row * heads.all + heads.begin + h;
    const bool has_state = a.state.denominator[at] != 0;
    T scale = 0;
    if (has_state) {
      const T before = a.state.maximum[at];
      largest[h] = before > largest[h] ? before : largest[h];
      scale = exponential(before - largest[h]);
    } else if (!has_edges) {
      largest[h] = 0;
    }
    a.state.maximum[at] = largest[h];
    a.state.denominator[at] = has_state ? a.state.denominator[at] * scale : T(0);
    if (scale == 1) continue;
    T* out = a.state.out + at * heads.width;
    for (int64_t j = 0; j < heads.width; ++j) out[j] = has_state ? out[j] * scale : T(0);
  }
}

// Starts the rows of the segments [begin, end) that start there, from all of their edges.
template <int kHeads, typename T>
DISTGNN_PER_ISA void start_rows(const AttendArgs<T>& a, const Heads& heads, int64_t begin,
                                int64_t end) {
  const int64_t wanted = prefetch_distance(heads.all * static_cast<int64_t>(sizeof(T)));
  for (int64_t i = begin; i < end; ++i) {
    const Segment s = a.schedule.segment(i);
    if (!s.starts) continue;
    const int64_t first = a.graph.indptr[s.row], last = a.graph.indptr[s.row + 1];
    const Segment whole{s.row, first, last, first, true, true};
    T largest[kMaxHeads];
    score_edges<kHeads, false>(a, heads, a.graph.indices, whole,
                               a.schedule.distance(last, wanted), static_cast<T*>(nullptr),
                               largest);
    start_row(a, heads, s.row, first < last, largest);
  }
}

// value -= subtrahend for the values of num_edges edges.
template <int kHeads, typename T>
DISTGNN_INLINE void subtract(const Heads& heads, const T* subtrahend, int64_t num_edges, T* value) {
  constexpr int kSize = kHeads > 0 ? kHeads : kMaxHeads;
  const int count = kHeads > 0 ? kHeads : static_cast<int>(heads.count);
  T local[kSize];
  for (int h = 0; h < count; ++h) local[h] = subtrahend[h];
  for (int64_t k = 0; k < num_edges; ++k, value += count) {
#pragma omp simd
    for (int h = 0; h < count; ++h) value[h] -= local[h];
  }
}

// out += the values of num_edges edges.
template <int kHeads, typename T>
DISTGNN_INLINE void add_up(const Heads& heads, const T* value, int64_t num_edges, T* out) {
  constexpr int kSize = kHeads > 0 ? kHeads : kMaxHeads;
  const int count = kHeads > 0 ? kHeads : static_cast<int>(heads.count);
  T local[kSize];
  for (int h = 0; h < count; ++h) local[h] = out[h];
  for (int64_t k = 0; k < num_edges; ++k, value += count) {
#pragma omp simd
    for (int h = 0; h < count; ++h) local[h] += value[h];
  }
  for (int h = 0; h < count; ++h) out[h] = local[h];
}

// weight = exp(e - maximum) for the edges of a stretch, and their sums into the denominators. The
// rows were started before if is_started, else every segment is a whole row.
template <int kHeads, typename T>
DISTGNN_PER_ISA void weigh_edges(const AttendArgs<T>& a, const Heads& heads,
                                 const Stretch& stretch, bool is_started, T* weight) {
  const int64_t count = kHeads > 0 ? kHeads : heads.count;
  const int64_t wanted = prefetch_distance(heads.all * static_cast<int64_t>(sizeof(T)));
  T* kept = weight;
  for (int64_t i = stretch.begin; i < stretch.end; ++i) {
    const Segment s = stretch.clip(a.schedule.segment(i));
    const int64_t coming = a.schedule.segment(std::min(i + kSegmentsAhead, stretch.end - 1)).row;
    prefetch_row(a, coming * heads.all + heads.begin);
    T largest[kMaxHeads];
    score_edges<kHeads, true>(a, heads, a.schedule.indices, s,
                              a.schedule.distance(s.end, wanted), kept, largest);
    if (!is_started) start_row(a, heads, s.row, s.begin < s.end, largest);
    const T* maximum = a.state.maximum + s.row * heads.all + heads.begin;
    subtract<kHeads>(heads, maximum, s.end - s.begin, kept);
    kept += (s.end - s.begin) * count;
  }
#pragma omp simd
  for (int64_t i = 0; i < stretch.num_edges() * count; ++i) weight[i] = exponential(weight[i]);
  const T* added = weight;
  for (int64_t i = stretch.begin; i < stretch.end; ++i) {
    const Segment s = stretch.clip(a.schedule.segment(i));
    T* denominator = a.state.denominator + s.row * heads.all + heads.begin;
    add_up<kHeads>(heads, added, s.end - s.begin, denominator);
    added += (s.end - s.begin) * count;
  }
}

// Drops weights of a stretch, after their sums.
template <int kHeads, typename T>
DISTGNN_PER_ISA void drop_edges(const AttendArgs<T>& a, const Heads& heads, const Stretch& stretch,
                                T* weight) {
  const int count = kHeads > 0 ? kHeads : static_cast<int>(heads.count);
  const MaskRule<T> mask = a.edges.mask;
  for (int64_t i = stretch.begin; i < stretch.end; ++i) {
    const Segment s = stretch.clip(a.schedule.segment(i));
    const int64_t* key = a.edges.key + s.edge;
    for (int64_t k = s.begin; k < s.end; ++k, ++key, weight += count) {
      const std::uint64_t bits = row_bits(mask.seed, *key);
#pragma omp simd
      for (int h = 0; h < count; ++h) weight[h] *= mask_factor(mask, bits, heads.begin + h);
    }
  }
}

template <int kHeads, typename X, typename T>
void attend_task(const AttendArgs<T>& a, const HeadSumArgs<X, T>& sum, int64_t begin, int64_t end,
                 const Heads& heads) {
  const bool is_cut = a.schedule.num_segments != a.graph.num_rows;
  if (is_cut) start_rows<kHeads>(a, heads, begin, end);
  T weight[kBufferValues];
  for_stretches(a.schedule, begin, end, kBufferValues / heads.count,
                [&](const Stretch& stretch, bool is_piece) {
                  const bool is_first = stretch.first_edge == a.schedule.begin[stretch.begin];
                  if (is_piece && !is_cut && is_first) {
                    start_rows<kHeads>(a, heads, stretch.begin, stretch.end);
                  }
                  weigh_edges<kHeads>(a, heads, stretch, is_cut || is_piece, weight);
                  if (a.edges.key != nullptr) drop_edges<kHeads>(a, heads, stretch, weight);
                  const HeadWeights<T> weights{weight, stretch.first_edge, heads.count, false};
                  sum_heads(sum, heads, stretch, weights, a.accumulate);
                });
}

}  // namespace

template <typename X, typename T>
void attend(const CsrView& graph, const WalkOrderView& walk, const AttentionScores<T>& scores,
            const AttentionEdges<T>& edges, const X* x, int64_t width, bool accumulate,
            const AttentionState<T>& state) {
  const Schedule schedule(graph, walk);
  const HeadSumArgs<X, T> sum{schedule, x, scores.num_heads * width, state.out};
  const AttendArgs<T> a{graph, schedule, scores, edges, state, accumulate};
  for_head_tasks(schedule, scores.num_heads, width,
                 [&](int64_t begin, int64_t end, const Heads& heads) {
                   switch (heads.count) {
                     case 1: return attend_task<1>(a, sum, begin, end, heads);
                     case 2: return attend_task<2>(a, sum, begin, end, heads);
                     case 4: return attend_task<4>(a, sum, begin, end, heads);
                     case 8: return attend_task<8>(a, sum, begin, end, heads);
                     default: return attend_task<0>(a, sum, begin, end, heads);
                   }
                 });
}

#define DISTGNN_ATTENTION(X, T)                                                         \
  template void attend(const CsrView&, const WalkOrderView&, const AttentionScores<T>&, \
                       const AttentionEdges<T>&, const X*, int64_t, bool,               \
                       const AttentionState<T>&);
DISTGNN_ATTENTION(float, float)
DISTGNN_ATTENTION(double, double)
DISTGNN_ATTENTION(Bf16, float)
#undef DISTGNN_ATTENTION

}  // namespace distgnn
