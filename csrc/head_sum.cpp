#include "head_sum.h"

namespace distgnn {
namespace {

// out[row] (+)= sum of weight * x[source] over the columns of the pass. Sums start from zero where
// a row starts, unless accumulate.
template <int kVectors, int kLanesOf, typename T>
DISTGNN_PER_ISA void sum_head_pass(const HeadSumArgs<T>& a, const Stretch& stretch,
                                   const HeadWeights<T>& weights, bool accumulate,
                                   const HeadPass& pass) {
  constexpr int kPerLine = 64 / sizeof(T);
  constexpr int kColumns = kVectors * kLanesOf;
  const std::int32_t* indices = a.schedule.indices;
  const std::int64_t wanted = prefetch_distance(a.width * static_cast<std::int64_t>(sizeof(T)));
  const std::int64_t last_column =
      column_beyond(a.x + pass.start[0], a.width,
                    pass.start[kVectors - 1] + kLanesOf - pass.start[0]);
  std::int64_t start[kVectors], head[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    start[i] = pass.start[i];
    head[i] = pass.head[i];
  }
  for (std::int64_t i = stretch.begin; i < stretch.end; ++i) {
    const Segment s = stretch.clip(a.schedule.segment(i));
    const std::int64_t ahead = std::min(i + kSegmentsAhead, stretch.end - 1);
    const T* coming_out = a.out + a.schedule.segment(ahead).row * a.width + start[0];
    for (int j = 0; j < kColumns; j += kPerLine) __builtin_prefetch(coming_out + j, 1);
    const std::int64_t distance = a.schedule.distance(s.end, wanted);
    const std::int64_t first = weights.is_by_edge ? s.begin - s.edge : weights.first;
    const T* weight = weights.weight + (s.begin - first) * weights.stride;
    T* out = a.out + s.row * a.width;
    T total[kColumns];
    for (int v = 0; v < kVectors; ++v) {
#pragma omp simd
      for (int j = 0; j < kLanesOf; ++j) {
        total[v * kLanesOf + j] = s.starts && !accumulate ? T(0) : out[start[v] + j];
      }
    }
    for (std::int64_t k = s.begin; k < s.end; ++k, weight += weights.stride) {
      const T* coming = a.x + indices[k + distance] * a.width + start[0];
      for (int j = 0; j < kColumns; j += kPerLine) __builtin_prefetch(coming + j);
      if (last_column != 0) __builtin_prefetch(coming + last_column);
      const T* source = a.x + indices[k] * a.width;
      for (int v = 0; v < kVectors; ++v) {
        const T factor = weight[head[v]];
        const T* values = source + start[v];
#pragma omp simd
        for (int j = 0; j < kLanesOf; ++j) total[v * kLanesOf + j] += factor * values[j];
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      store_vector<kLanesOf>(total + v * kLanesOf, pass.skip[v], out + start[v]);
    }
  }
}

}  // namespace

template <typename T>
void sum_heads(const HeadSumArgs<T>& a, const Heads& heads, const Stretch& stretch,
               const HeadWeights<T>& weights, bool accumulate) {
  for_head_passes<T>(heads, [&](auto size, const HeadPass& pass) {
    sum_head_pass<size.kNumVectors, size.kNumLanes>(a, stretch, weights, accumulate, pass);
  });
}

template void sum_heads(const HeadSumArgs<float>&, const Heads&, const Stretch&,
                        const HeadWeights<float>&, bool);
template void sum_heads(const HeadSumArgs<double>&, const Heads&, const Stretch&,
                        const HeadWeights<double>&, bool);

}  // namespace distgnn
