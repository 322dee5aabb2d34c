#include "attention.h"
#include "exponential.h"
#include "head_dot.h"
#include "stretches.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// Edges times heads that a task keeps on its stack, in six values each.
constexpr int64_t kBufferValues = 1024;
// Edges between the prefetch of an edge's gradient and its writing.
constexpr int64_t kEdgesAhead = 16;

template <typename T>
struct BackwardArgs {
  Schedule schedule;
  const int64_t* edge;
  const T* source_score;
  T slope;
  AttentionTargets<T> targets;
  const T* x;
  int64_t width;  // of a row of x: all heads
  bool accumulate;
  AttentionGradients<T> gradients;
};

// What is kept of the edges of a stretch, edge by edge and head by head.
template <typename T>
struct Buffer {
  T alpha[kBufferValues];
  T gate[kBufferValues];  // derivative of e by raw
  T dots[kBufferValues * kPartials];
};

template <int kHeads, typename T>
DISTGNN_PER_ISA void weigh_edges(const BackwardArgs<T>& a, const Heads& heads,
                                 const Stretch& stretch, Buffer<T>* buffer) {
  constexpr int kSize = kHeads > 0 ? kHeads : kMaxHeads;
  const int count = kHeads > 0 ? kHeads : static_cast<int>(heads.count);
  const int64_t wanted = prefetch_distance(heads.all * static_cast<int64_t>(sizeof(T)));
  const T slope = a.slope;
  for (int64_t i = stretch.begin; i < stretch.end; ++i) {
    const Segment s = stretch.clip(a.schedule.segment(i));
    const int64_t distance = a.schedule.distance(s.end, wanted);
    // A copy, which no store can change.
    T source[kSize];
    for (int h = 0; h < count; ++h) source[h] = a.source_score[s.row * heads.all + heads.begin + h];
    const int64_t first = (s.begin - stretch.first_edge) * count;
    T* alpha = buffer->alpha + first;
    T* gate = buffer->gate + first;
    for (int64_t k = s.begin; k < s.end; ++k, alpha += count, gate += count) {
      const int64_t coming = a.schedule.indices[k + distance] * heads.all + heads.begin;
      __builtin_prefetch(a.targets.score + coming);
      __builtin_prefetch(a.targets.log_sum + coming);
      __builtin_prefetch(a.targets.delta + coming);
      const int64_t at = a.schedule.indices[k] * heads.all + heads.begin;
      const T* target = a.targets.score + at;
      const T* log_sum = a.targets.log_sum + at;
#pragma omp simd
      for (int h = 0; h < count; ++h) {
        const T raw = source[h] + target[h];
        gate[h] = raw > 0 ? T(1) : slope;
        alpha[h] = raw * gate[h] - log_sum[h];
      }
    }
  }
#pragma omp simd
  for (int64_t i = 0; i < stretch.num_edges() * count; ++i) {
    buffer->alpha[i] = exponential(buffer->alpha[i]);
  }
}

// grad_x, and the partial sums of grad . x of every edge, over the columns of the pass.
template <int kVectors, int kLanesOf, typename T>
DISTGNN_PER_ISA void backward_pass(const BackwardArgs<T>& a, const Heads& heads,
                                   const Stretch& stretch, const HeadPass& pass,
                                   Buffer<T>* buffer) {
  constexpr int kPerLine = 64 / sizeof(T);
  constexpr int kColumns = kVectors * kLanesOf;
  const int32_t* indices = a.schedule.indices;
  const int64_t wanted = prefetch_distance(a.width * static_cast<int64_t>(sizeof(T)));
  const int64_t last_column =
      column_beyond(a.targets.grad + pass.start[0], a.width,
                    pass.start[kVectors - 1] + kLanesOf - pass.start[0]);
  for (int64_t i = stretch.begin; i < stretch.end; ++i) {
    const Segment s = stretch.clip(a.schedule.segment(i));
    const int64_t distance = a.schedule.distance(s.end, wanted);
    const int64_t ahead = std::min(i + kSegmentsAhead, stretch.end - 1);
    const int64_t coming_row = a.schedule.segment(ahead).row * a.width + pass.start[0];
    for (int j = 0; j < kColumns; j += kPerLine) {
      __builtin_prefetch(a.gradients.x + coming_row + j, 1);
      __builtin_prefetch(a.x + coming_row + j);
    }
    const int64_t first = (s.begin - stretch.first_edge) * heads.count;
    const T* alpha = buffer->alpha + first;
    T* dots = buffer->dots + first * kPartials;
    T* out = a.gradients.x + s.row * a.width;
    T local[kColumns], total[kColumns];
    load_row<kVectors, kLanesOf>(pass, a.x + s.row * a.width, local);
    for (int v = 0; v < kVectors; ++v) {
#pragma omp simd
      for (int j = 0; j < kLanesOf; ++j) {
        total[v * kLanesOf + j] = s.starts && !a.accumulate ? T(0) : out[pass.start[v] + j];
      }
    }
    for (int64_t k = s.begin; k < s.end; ++k) {
      const T* coming = a.targets.grad + indices[k + distance] * a.width + pass.start[0];
      for (int j = 0; j < kColumns; j += kPerLine) __builtin_prefetch(coming + j);
      if (last_column != 0) __builtin_prefetch(coming + last_column);
      const T* grad = a.targets.grad + indices[k] * a.width;
      for (int v = 0; v < kVectors; ++v) {
        const T factor = alpha[pass.head[v]];
#pragma omp simd
        for (int j = 0; j < kLanesOf; ++j) {
          total[v * kLanesOf + j] += factor * grad[pass.start[v] + j];
        }
      }
      add_dots<kVectors, kLanesOf>(pass, local, grad, dots);
      alpha += heads.count;
      dots += heads.count * kPartials;
    }
    for (int v = 0; v < kVectors; ++v) {
      store_vector<kLanesOf>(total + v * kLanesOf, pass.skip[v], out + pass.start[v]);
    }
  }
}

// The gradients of the scores.
template <int kHeads, typename T>
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
    const T* alpha = buffer.alpha + first;
    const T* gate = buffer.gate + first;
    const T* dots = buffer.dots + first * kPartials;
    const int64_t* edge = a.edge + s.edge;
    const int64_t num_edges = s.end - s.begin;
    for (int64_t k = 0; k < num_edges; ++k) {
      const int64_t coming = edge[std::min(k + kEdgesAhead, num_edges - 1)];
      __builtin_prefetch(a.gradients.edge + coming * heads.all + heads.begin, 1);
      const T* delta = a.targets.delta + a.schedule.indices[s.begin + k] * heads.all + heads.begin;
      T* edge_grad = a.gradients.edge + edge[k] * heads.all + heads.begin;
#pragma omp simd
      for (int h = 0; h < count; ++h) {
        const T product = finished_dot(dots + h * kPartials) - delta[h];
        const T grad = alpha[h] * product * gate[h];
        edge_grad[h] = grad;
        total[h] += grad;
      }
      alpha += count;
      gate += count;
      dots += count * kPartials;
    }
    for (int h = 0; h < count; ++h) out[h] = total[h];
  }
}

template <int kHeads, typename T>
void backward_task(const BackwardArgs<T>& a, int64_t begin, int64_t end, const Heads& heads) {
  Buffer<T> buffer;
  for_stretches(a.schedule, begin, end, kBufferValues / heads.count,
                [&](const Stretch& stretch, bool) {
                  weigh_edges<kHeads>(a, heads, stretch, &buffer);
                  for_head_passes<T>(heads, [&](auto size, const HeadPass& pass) {
                    backward_pass<size.kNumVectors, size.kNumLanes>(a, heads, stretch, pass,
                                                                    &buffer);
                  });
                  finish_edges<kHeads>(a, heads, stretch, buffer);
                });
}

}  // namespace

template <typename T>
void attend_backward(const CsrView& transpose, const PlanView& plan, const int64_t* edge,
                     const T* source_score, T slope, const AttentionTargets<T>& targets,
                     const T* x, int64_t num_heads, int64_t width, bool accumulate,
                     const AttentionGradients<T>& gradients) {
  const BackwardArgs<T> a{Schedule(transpose, plan), edge,      source_score, slope, targets, x,
                          num_heads * width,         accumulate, gradients};
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

#define DISTGNN_ATTENTION(T)                                                                     \
  template void attend_backward(const CsrView&, const PlanView&, const int64_t*, const T*, T,    \
                                const AttentionTargets<T>&, const T*, int64_t, int64_t, bool,    \
                                const AttentionGradients<T>&);
DISTGNN_ATTENTION(float)
DISTGNN_ATTENTION(double)
#undef DISTGNN_ATTENTION

}  // namespace distgnn
