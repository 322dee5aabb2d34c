#include "sddmm.h"

#include "head_dot.h"
#include "stretches.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// Dot products whose partial sums a task keeps on its stack.
constexpr int64_t kBufferValues = 1024;

template <typename T>
struct SddmmArgs {
  Schedule schedule;
  const T* x;
  const T* y;
  int64_t width;  // of a row of x and y: all heads
  T* out;
};

// The partial sums of every edge, over the columns of the pass.
template <int kVectors, int kLanesOf, typename T>
DISTGNN_PER_ISA void dot_pass(const SddmmArgs<T>& a, const Heads& heads, const Stretch& stretch,
                              const HeadPass& pass, T* dots) {
  constexpr int kPerLine = 64 / sizeof(T);
  constexpr int kColumns = kVectors * kLanesOf;
  const int32_t* indices = a.schedule.indices;
  const int64_t wanted = prefetch_distance(a.width * static_cast<int64_t>(sizeof(T)));
  const int64_t last_column =
      column_beyond(a.x + pass.start[0], a.width,
                    pass.start[kVectors - 1] + kLanesOf - pass.start[0]);
  for (int64_t i = stretch.begin; i < stretch.end; ++i) {
    const Segment s = stretch.clip(a.schedule.segment(i));
    const int64_t distance = a.schedule.distance(s.end, wanted);
    const int64_t ahead = std::min(i + kSegmentsAhead, stretch.end - 1);
    const T* coming_y = a.y + a.schedule.segment(ahead).row * a.width + pass.start[0];
    for (int j = 0; j < kColumns; j += kPerLine) __builtin_prefetch(coming_y + j);
    T local[kColumns];
    load_row<kVectors, kLanesOf>(pass, a.y + s.row * a.width, local);
    for (int64_t k = s.begin; k < s.end; ++k, dots += heads.count * kPartials) {
      const T* coming = a.x + indices[k + distance] * a.width + pass.start[0];
      for (int j = 0; j < kColumns; j += kPerLine) __builtin_prefetch(coming + j);
      if (last_column != 0) __builtin_prefetch(coming + last_column);
      add_dots<kVectors, kLanesOf>(pass, local, a.x + indices[k] * a.width, dots);
    }
  }
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

}  // namespace

template <typename T>
void sddmm_dot(const CsrView& graph, const PlanView& plan, const T* x, const T* y,
               int64_t num_heads, int64_t width, T* out) {
  const SddmmArgs<T> a{Schedule(graph, plan), x, y, num_heads * width, out};
  for_head_tasks(a.schedule, num_heads, width,
                 [&](int64_t begin, int64_t end, const Heads& heads) {
                   T dots[kBufferValues * kPartials];
                   if (width == 0) std::fill_n(dots, kBufferValues * kPartials, T(0));
                   for_stretches(a.schedule, begin, end, kBufferValues / heads.count,
                                 [&](const Stretch& stretch, bool) {
                                   for_head_passes<T>(heads, [&](auto size, const HeadPass& pass) {
                                     dot_pass<size.kNumVectors, size.kNumLanes>(
                                         a, heads, stretch, pass, dots);
                                   });
                                   finish_dots(a, heads, stretch, dots);
                                 });
                 });
}

template <typename T>
void sddmm_add(const CsrView& graph, const PlanView& plan, const T* x, const T* y,
               int64_t num_heads, T* out) {
  const SddmmArgs<T> a{Schedule(graph, plan), x, y, num_heads, out};
  for_head_tasks(a.schedule, num_heads, 1, [&](int64_t begin, int64_t end, const Heads& heads) {
    add_scores(a, heads, begin, end);
  });
}

#define DISTGNN_SDDMM(T)                                                                      \
  template void sddmm_dot(const CsrView&, const PlanView&, const T*, const T*, int64_t,       \
                          int64_t, T*);                                                       \
  template void sddmm_add(const CsrView&, const PlanView&, const T*, const T*, int64_t, T*);
DISTGNN_SDDMM(float)
DISTGNN_SDDMM(double)
#undef DISTGNN_SDDMM

}  // namespace distgnn
