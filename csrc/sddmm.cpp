// Algorithm: a stretch of edges of a row is scored while the row's own values stay in registers.
// Formula: out[k, h] = f(x[indices[k], h], y[v, h]): a dot product, a leaky score, or a sum.
// Source: Brody, Alon and Yahav, "How Attentive are Graph Attention Networks?", ICLR 2022.
#include "sddmm.h"

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "head_dot.h"
#include "number.h"
#include "passes.h"
#include "stretches.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// Values of edges that a task keeps on its stack.
constexpr int64_t kBufferValues = 1024;

template <typename T>
struct SddmmArgs {
  Schedule schedule;
  const T* x;
  const T* y;
  const T* factor;  // of a leaky sum
  T slope;
  int64_t width;  // of a row of x and y: all heads
  T* out;
};

template <typename T>
struct GateArgs {
  Schedule schedule;
  const int64_t* edge;
  const T* value;
  const T* x;
  const T* y;
  T slope;
  int64_t width;
  T* out;
};

}  // namespace
}  // namespace distgnn

#define DISTGNN_BODY "sddmm_pass.inc"
#include "per_isa.h"

namespace distgnn {
namespace {

template <bool kIsLeaky, int kVectors, int kColumns, int kHeadsOf, typename T>
void dot_pass(const SddmmArgs<T>& a, const Heads& heads, const Stretch& stretch,
              const HeadPass& pass, T* dots) {
  DISTGNN_BEST(dot_pass<kIsLeaky, kVectors, kColumns, kHeadsOf>(a, heads, stretch, pass, dots));
}

template <int kVectors, int kColumns, int kHeadsOf, typename T>
void gate_pass(const GateArgs<T>& a, const Heads& heads, const Stretch& stretch,
               const HeadPass& pass, const T* value) {
  DISTGNN_BEST(gate_pass<kVectors, kColumns, kHeadsOf>(a, heads, stretch, pass, value));
}

template <typename T>
DISTGNN_PER_ISA void finish_dots(const SddmmArgs<T>& a, const Heads& heads,
                                 const Stretch& stretch, const T* dots) {
  for (int64_t i = stretch.begin; i < stretch.end; ++i) {
    const Segment s = stretch.clip(a.schedule.segment(i));
    T* out = a.out + s.edge * heads.all + heads.begin;
    for (int64_t k = s.begin; k < s.end; ++k, out += heads.all) {
      for (int64_t h = 0; h < heads.count; ++h, dots += kPartials) out[h] = finished_dot(dots);
    }
  }
}

template <bool kIsLeaky, typename T>
void dots_of_edges(const SddmmArgs<T>& a, int64_t num_heads, int64_t width) {
  for_head_tasks(a.schedule, num_heads, width,
                 [&](int64_t begin, int64_t end, const Heads& heads) {
                   T dots[kBufferValues * kPartials];
                   if (width == 0) std::fill_n(dots, kBufferValues * kPartials, T(0));
                   for_stretches(
                       a.schedule, begin, end, kBufferValues / heads.count,
                       [&](const Stretch& stretch, bool) {
                         for_joined_passes<T>(heads, [&](auto size, const HeadPass& pass) {
                           dot_pass<kIsLeaky, size.kNumVectors, size.kNumLanes, size.kNumHeads>(
                               a, heads, stretch, pass, dots);
                         });
                         finish_dots(a, heads, stretch, dots);
                       });
                 });
}

template <typename T>
DISTGNN_PER_ISA void add_scores(const SddmmArgs<T>& a, const Heads& heads, int64_t begin,
                                int64_t end) {
  const int32_t* indices = a.schedule.indices;
  const int64_t wanted = prefetch_distance(a.width * static_cast<int64_t>(sizeof(T)));
  for (int64_t i = begin; i < end; ++i) {
    const Segment s = a.schedule.segment(i);
    const int64_t distance = a.schedule.distance(s.end, wanted);
    const T* y = a.y + s.row * heads.all + heads.begin;
    T* out = a.out + s.edge * heads.all + heads.begin;
    for (int64_t k = s.begin; k < s.end; ++k, out += heads.all) {
      __builtin_prefetch(a.x + indices[k + distance] * heads.all + heads.begin);
      const T* x = a.x + indices[k] * heads.all + heads.begin;
#pragma omp simd
      for (int64_t h = 0; h < heads.count; ++h) out[h] = x[h] + y[h];
    }
  }
}

// Copies the values of a stretch's edges, whose positions are anywhere, side by side.
template <typename T>
void copy_values(const GateArgs<T>& a, const Heads& heads, const Stretch& stretch, T* value) {
  for (const bool is_copied : {false, true}) {
    for (int64_t i = stretch.begin; i < stretch.end; ++i) {
      const Segment s = stretch.clip(a.schedule.segment(i));
      for (int64_t k = s.edge; k < s.edge + s.end - s.begin; ++k) {
        const int64_t edge = a.edge != nullptr ? a.edge[k] : k;
        const T* from = a.value + edge * heads.all + heads.begin;
        if (!is_copied) {
          __builtin_prefetch(from);
        } else {
          value = std::copy_n(from, heads.count, value);
        }
      }
    }
  }
}

}  // namespace

template <typename T>
void sddmm_dot(const CsrView& graph, const WalkOrderView& walk, const T* x, const T* y,
               int64_t num_heads, int64_t width, T* out) {
  const Schedule schedule(graph, walk);
  dots_of_edges<false>(SddmmArgs<T>{schedule, x, y, nullptr, 0, num_heads * width, out}, num_heads,
                       width);
}

template <typename T>
void sddmm_leaky(const CsrView& graph, const WalkOrderView& walk, const T* x, const T* y,
                 const T* factor, T slope, int64_t num_heads, int64_t width, T* out) {
  const Schedule schedule(graph, walk);
  dots_of_edges<true>(SddmmArgs<T>{schedule, x, y, factor, slope, num_heads * width, out},
                      num_heads, width);
}

template <typename T>
void sddmm_leaky_backward(const CsrView& graph, const WalkOrderView& walk, const int64_t* edge,
                          const T* value, const T* x, const T* y, T slope, int64_t num_heads,
                          int64_t width, T* out) {
  const GateArgs<T> a{Schedule(graph, walk), edge, value, x, y, slope, num_heads * width, out};
  for_head_tasks(a.schedule, num_heads, width,
                 [&](int64_t begin, int64_t end, const Heads& heads) {
                   T copied[kBufferValues];
                   for_stretches(a.schedule, begin, end, kBufferValues / heads.count,
                                 [&](const Stretch& stretch, bool) {
                                   copy_values(a, heads, stretch, copied);
                                   for_joined_passes<T>(heads, [&](auto size, const HeadPass& pass) {
                                     gate_pass<size.kNumVectors, size.kNumLanes, size.kNumHeads>(
                                         a, heads, stretch, pass, copied);
                                   });
                                 });
                 });
}

template <typename T>
void sddmm_add(const CsrView& graph, const WalkOrderView& walk, const T* x, const T* y,
               int64_t num_heads, T* out) {
  const SddmmArgs<T> a{Schedule(graph, walk), x, y, nullptr, 0, num_heads, out};
  for_head_tasks(a.schedule, num_heads, 1, [&](int64_t begin, int64_t end, const Heads& heads) {
    add_scores(a, heads, begin, end);
  });
}

#define DISTGNN_SDDMM(T)                                                                           \
  template void sddmm_dot(const CsrView&, const WalkOrderView&, const T*, const T*, int64_t,       \
                          int64_t, T*);                                                            \
  template void sddmm_leaky(const CsrView&, const WalkOrderView&, const T*, const T*, const T*, T, \
                            int64_t, int64_t, T*);                                                 \
  template void sddmm_leaky_backward(const CsrView&, const WalkOrderView&, const int64_t*,         \
                                     const T*, const T*, const T*, T, int64_t, int64_t, T*);       \
  template void sddmm_add(const CsrView&, const WalkOrderView&, const T*, const T*, int64_t, T*);
DISTGNN_SDDMM(float)
DISTGNN_SDDMM(double)
#undef DISTGNN_SDDMM

}  // namespace distgnn
