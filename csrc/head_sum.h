// The sum of source rows with a weight for every edge and head: what attention and weighted
// aggregation have in common.
#pragma once

#include <cstdint>

#include "heads.h"
#include "schedule.h"
#include "stretches.h"

namespace distgnn {

// The weight of edge k of the schedule's order and of head h is weight[(k - first) * stride + h],
// or, where is_by_edge, that of the edge's position in the graph.
template <typename T>
struct HeadWeights {
  const T* weight;
  std::int64_t first;
  std::int64_t stride;
  bool is_by_edge;
};

// X: as the source rows are stored, T: as they are added and the sums are stored.
template <typename X, typename T>
struct HeadSumArgs {
  Schedule schedule;
  const X* x;
  std::int64_t width;  // of a row of x and out: all heads
  T* out;
};

// out[row] (+)= sum of weight * x[source] over the columns of the heads, in the order of the edges.
// Sums start from zero where a row starts, unless accumulate.
template <typename X, typename T>
void sum_heads(const HeadSumArgs<X, T>& a, const Heads& heads, const Stretch& stretch,
               const HeadWeights<T>& weights, bool accumulate);

}  // namespace distgnn
