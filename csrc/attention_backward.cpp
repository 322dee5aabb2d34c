// Algorithm: one pass over the edges out of a row recomputes alpha from the scores and the log-
//   sum.
// Formula: d raw = alpha * (grad[v] . x[u] - delta[v]) * gate; grad_x[u] = sum of alpha * grad[v].
// Source: Mostafa, "Sequential Aggregation and Rematerialization", MLSys 2022.
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "attention.h"
#include "exponential.h"
#include "head_dot.h"
#include "number.h"
#include "passes.h"
#include "stretches.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// Edges times heads that a task keeps on its stack, in seven values each.
constexpr int64_t kBufferValues = 1024;

template <typename T>
struct BackwardArgs {
  Schedule schedule;
  const int64_t* edge;
  const T* source_score;
  T slope;
  AttentionEdges<T> edges;
  AttentionTargets<T> targets;
  Stored<const T> x;
  int64_t width;  // of a row of x: all heads
  bool accumulate;
  AttentionGradients<T> gradients;
};

// What is kept of the edges of a stretch, edge by edge and head by head.
template <typename T>
struct Buffer {
  T alpha[kBufferValues];
  T gate[kBufferValues];    // derivative of e by raw; times alpha, once alpha is dropped
  T factor[kBufferValues];  // 0 where alpha is dropped, else what it is scaled by
  T dots[kBufferValues * kPartials];
};

}  // namespace
}  // namespace distgnn

#define DISTGNN_BODY "attention_backward_pass.inc"
#include "per_isa.h"

namespace distgnn {
namespace {

template <int kVectors, int kColumns, int kHeadsOf, typename X, typename T>
void backward_pass(const BackwardArgs<T>& a, const X* grad, const Heads& heads,
                   const Stretch& stretch, const HeadPass& pass, Buffer<T>* buffer, T* carried) {
  DISTGNN_BEST(backward_pass<kVectors, kColumns, kHeadsOf>(a, grad, heads, stretch, pass, buffer,
                                                           carried));
}

// Where a thread keeps a row until its last edges, if it is rounded then.
template <typename T>
T* carried_row(int64_t width) {
  thread_local std::vector<T> row;
  if (static_cast<int64_t>(row.size()) < width) row.resize(width);
  return row.data();
}

// The exponents and the gates of a segment.
template <int kHeads, bool kHasOwn, typename T>
DISTGNN_INLINE void score_edges(const BackwardArgs<T>& a, const Heads& heads, const Segment& s,
                                int64_t distance, T* alpha, T* gate) {
  constexpr int kSize = kHeads > 0 ? kHeads : kMaxHeads;
  const int count = kHeads > 0 ? kHeads : static_cast<int>(heads.count);
  const T slope = a.slope;
  // A copy, which no store can change.
  T source[kSize];
  for (int h = 0; h < count; ++h) source[h] = a.source_score[s.row * heads.all + heads.begin + h];
  const int64_t* edge = a.edge + (s.edge - s.begin);
  for (int64_t k = s.begin; k < s.end; ++k, alpha += count, gate += count) {
    // Written when the stretch is finished, each on a line of its own.
    __builtin_prefetch(a.gradients.edge + edge[k] * heads.all + heads.begin, 1);
    const int64_t coming = a.schedule.indices[k + distance] * heads.all + heads.begin;
    __builtin_prefetch(a.targets.score + coming);
    __builtin_prefetch(a.targets.log_sum + coming);
    __builtin_prefetch(a.targets.delta + coming);
    const int64_t at = a.schedule.indices[k] * heads.all + heads.begin;
    const T* target = a.targets.score + at;
    const T* log_sum = a.targets.log_sum + at;
    const T* own = kHasOwn ? a.edges.score + edge[k] * heads.all + heads.begin : nullptr;
#pragma omp simd
    for (int h = 0; h < count; ++h) {
      T raw = source[h] + target[h];
      if (kHasOwn) raw += own[h];
      gate[h] = raw > 0 ? T(1) : slope;
      alpha[h] = raw * gate[h] - log_sum[h];
    }
  }
}

// Asks for what the edges of a stretch have of their own: each on a line of its own.
template <typename T>
DISTGNN_INLINE void prefetch_edges(const BackwardArgs<T>& a, const Heads& heads,
                                   const Stretch& stretch) {
  for (int64_t i = stretch.begin; i < stretch.end; ++i) {
    const Segment s = stretch.clip(a.schedule.segment(i));
    const int64_t* edge = a.edge + (s.edge - s.begin);
    for (int64_t k = s.begin; k < s.end; ++k) {
      if (a.edges.score) __builtin_prefetch(a.edges.score + edge[k] * heads.all + heads.begin);
      if (a.edges.key) __builtin_prefetch(a.edges.key + edge[k]);
    }
  }
}

template <int kHeads, typename T>
DISTGNN_PER_ISA void weigh_edges(const BackwardArgs<T>& a, const Heads& heads,
                                 const Stretch& stretch, Buffer<T>* buffer) {
  const int64_t count = kHeads > 0 ? kHeads : heads.count;
  const int64_t wanted = prefetch_distance(heads.all * static_cast<int64_t>(sizeof(T)));
  if (a.edges.score != nullptr || a.edges.key != nullptr) prefetch_edges(a, heads, stretch);
  for (int64_t i = stretch.begin; i < stretch.end; ++i) {
    const Segment s = stretch.clip(a.schedule.segment(i));
    const int64_t distance = a.schedule.distance(s.end, wanted);
    const int64_t first = (s.begin - stretch.first_edge) * count;
    T* alpha = buffer->alpha + first;
    T* gate = buffer->gate + first;
    if (a.edges.score == nullptr) {
      score_edges<kHeads, false>(a, heads, s, distance, alpha, gate);
    } else {
      score_edges<kHeads, true>(a, heads, s, distance, alpha, gate);
    }
  }
#pragma omp simd
  for (int64_t i = 0; i < stretch.num_edges() * count; ++i) {
    buffer->alpha[i] = exponential(buffer->alpha[i]);
  }
}

// Drops weights, and keeps what the gradients of the scores need of them.
template <int kHeads, typename T>
DISTGNN_PER_ISA void drop_edges(const BackwardArgs<T>& a, const Heads& heads,
                                const Stretch& stretch, Buffer<T>* buffer) {
  const int count = kHeads > 0 ? kHeads : static_cast<int>(heads.count);
  const MaskRule<T> mask = a.edges.mask;
  T* factor = buffer->factor;
  for (int64_t i = stretch.begin; i < stretch.end; ++i) {
    const Segment s = stretch.clip(a.schedule.segment(i));
    const int64_t* edge = a.edge + (s.edge - s.begin);
    for (int64_t k = s.begin; k < s.end; ++k, factor += count) {
      const std::uint64_t bits = row_bits(mask.seed, a.edges.key[edge[k]]);
#pragma omp simd
      for (int h = 0; h < count; ++h) factor[h] = mask_factor(mask, bits, heads.begin + h);
    }
  }
#pragma omp simd
  for (int64_t i = 0; i < stretch.num_edges() * count; ++i) {
    buffer->gate[i] *= buffer->alpha[i];
    buffer->alpha[i] *= buffer->factor[i];
  }
}

// The gradients of the scores.
template <int kHeads, bool kDrops, typename T>
DISTGNN_PER_ISA void finish_edges(const BackwardArgs<T>& a, const Heads& heads,
                                  const Stretch& stretch, const Buffer<T>& buffer) {
  constexpr int kSize = kHeads > 0 ? kHeads : kMaxHeads;
  const int count = kHeads > 0 ? kHeads : static_cast<int>(heads.count);
  for (int64_t i = stretch.begin; i < stretch.end; ++i) {
    const Segment s = stretch.clip(a.schedule.segment(i));
    T* out = a.gradients.source + s.row * heads.all + heads.begin;
    T total[kSize];
    for (int h = 0; h < count; ++h) total[h] = s.starts && !a.accumulate ? T(0) : out[h];
    const int64_t first = (s.begin - stretch.first_edge) * count;
    // Of a weight that may be dropped alpha is in the gate.
    const T* scale = (kDrops ? buffer.factor : buffer.alpha) + first;
    const T* gate = buffer.gate + first;
    const T* dots = buffer.dots + first * kPartials;
    const int64_t* edge = a.edge + s.edge;
    const int64_t num_edges = s.end - s.begin;
    for (int64_t k = 0; k < num_edges; ++k) {
      const T* delta = a.targets.delta + a.schedule.indices[s.begin + k] * heads.all + heads.begin;
      T* edge_grad = a.gradients.edge + edge[k] * heads.all + heads.begin;
#pragma omp simd
      for (int h = 0; h < count; ++h) {
        const T dot = finished_dot(dots + h * kPartials);
        const T grad = kDrops ? (scale[h] * dot - delta[h]) * gate[h]
                              : scale[h] * (dot - delta[h]) * gate[h];
        edge_grad[h] = grad;
        total[h] += grad;
      }
      scale += count;
      gate += count;
      dots += count * kPartials;
    }
    for (int h = 0; h < count; ++h) out[h] = total[h];
  }
}

// All columns of a stretch.
template <typename X, typename T>
void backward_columns(const BackwardArgs<T>& a, const X* grad, const Heads& heads,
                      const Stretch& stretch, bool is_piece, Buffer<T>* buffer) {
  const bool is_carried = is_piece && a.gradients.x.is_narrow();
  T* carried = is_carried ? carried_row<T>(a.width) : nullptr;
  for_joined_passes<T>(heads, [&](auto size, const HeadPass& pass) {
    backward_pass<size.kNumVectors, size.kNumLanes, size.kNumHeads>(a, grad, heads, stretch, pass,
                                                                    buffer, carried);
  });
}

template <int kHeads, typename T>
void backward_task(const BackwardArgs<T>& a, int64_t begin, int64_t end, const Heads& heads) {
  Buffer<T> buffer;
  const Stored<const T>& grad = a.targets.grad;
  for_stretches(a.schedule, begin, end, kBufferValues / heads.count,
                [&](const Stretch& stretch, bool is_piece) {
                  weigh_edges<kHeads>(a, heads, stretch, &buffer);
                  const bool drops = a.edges.key != nullptr;
                  if (drops) drop_edges<kHeads>(a, heads, stretch, &buffer);
                  if (!grad.is_narrow()) {
                    backward_columns(a, grad.wide, heads, stretch, is_piece, &buffer);
                  } else if constexpr (sizeof(T) == sizeof(float)) {
                    backward_columns(a, grad.narrow, heads, stretch, is_piece, &buffer);
                  }
                  if (drops) {
                    finish_edges<kHeads, true>(a, heads, stretch, buffer);
                  } else {
                    finish_edges<kHeads, false>(a, heads, stretch, buffer);
                  }
                });
}

}  // namespace

template <typename T>
void attend_backward(const CsrView& transpose, const WalkOrderView& walk, const int64_t* edge,
                     const T* source_score, T slope, const AttentionEdges<T>& edges,
                     const AttentionTargets<T>& targets, const Stored<const T>& x,
                     int64_t num_heads, int64_t width, bool accumulate,
                     const AttentionGradients<T>& gradients) {
  // Rows in segments would be rounded between them.
  const bool is_cut = walk.row != nullptr && walk.task[walk.num_tasks] != transpose.num_rows;
  const Schedule schedule(transpose, is_cut && gradients.x.is_narrow() ? WalkOrderView{} : walk);
  const int64_t columns = num_heads * width;
  const BackwardArgs<T> a{schedule, edge, source_score, slope,      edges,
                          targets,  x,    columns,      accumulate, gradients};
  for_head_tasks(a.schedule, num_heads, width,
                 [&](int64_t begin, int64_t end, const Heads& heads) {
                   switch (heads.count) {
                     case 1: return backward_task<1>(a, begin, end, heads);
                     case 2: return backward_task<2>(a, begin, end, heads);
                     case 4: return backward_task<4>(a, begin, end, heads);
                     case 8: return backward_task<8>(a, begin, end, heads);
                     default: return backward_task<0>(a, begin, end, heads);
                   }
                 });
}

#define DISTGNN_ATTENTION(T)                                                                       \
  template void attend_backward(const CsrView&, const WalkOrderView&, const int64_t*, const T*, T, \
                                const AttentionEdges<T>&, const AttentionTargets<T>&,              \
                                const Stored<const T>&, int64_t, int64_t, bool,                    \
                                const AttentionGradients<T>&);
DISTGNN_ATTENTION(float)
DISTGNN_ATTENTION(double)
#undef DISTGNN_ATTENTION

}  // namespace distgnn
