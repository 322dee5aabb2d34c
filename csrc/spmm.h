// Aggregation over neighbours (SpMM): a sum or a maximum of source rows per destination row.
//
// Dense matrices are row-major and contiguous: x is (num_sources, width), out is
// (graph.num_rows, width). T is float or double. out may not overlap an input.
//
// Threads: a destination row has one owner, which adds its neighbours in CSR order. No result
// depends on the number of threads or on the instruction set. Nothing is allocated.
//
// Variant: rows over threads, features in registers. Up to 1 KiB of the destination row is kept in
// registers while all its neighbours are read, so that out is written once; source rows are
// prefetched some edges ahead, because they are what the kernel waits for. A plan (plan.h) brings
// rows with common sources together.
#pragma once

#include <cstdint>

#include "csr.h"
#include "number.h"
#include "schedule.h"

namespace distgnn {

// Factors of a sum; null for ones.
template <typename T>
struct SumFactors {
  const T* edge;  // (num_edges,) of each source row, in the order of the graph
  const T* row;   // (num_rows,) of each finished sum
};

// out[v] = factors.row[v] * sum over k in row v of factors.edge[k] * x[indices[k]], the sum started
// from out[v] instead of zero if accumulate is true. X is how x is stored, O how out is, T what is
// computed with: float, float, float; all double; or Bf16 rows, sums in float stored as either.
// With a plan that cuts rows, sums stored as Bf16 would be rounded between the pieces: such a call
// walks the graph without it.
template <typename X, typename T, typename O>
void spmm_sum(const CsrView& graph, const PlanView& plan, const SumFactors<T>& factors, const X* x,
              std::int64_t width, bool accumulate, O* out);

// The state of a maximum: for every element its value, the position of the edge that won
// (edge_offset + k, or -1 and value 0 while no edge was seen) and the key of that edge's source.
template <typename T>
struct MaxState {
  T* value;               // (num_rows, width)
  std::int64_t* arg;      // (num_rows, width)
  std::int64_t* arg_key;  // (num_rows, width), undefined where arg is -1
};

// out[v] = max over k in row v of x[indices[k]], element by element. Of equal values the one with
// the smaller key[source] wins, then the smaller position: keys that do not depend on the partition
// make the winner independent of it. A NaN is larger than any number, so that it shows in the
// result. With accumulate the state already in out takes part in the contest.
// Keys must be below the largest int64.
template <typename T>
void spmm_max(const CsrView& graph, const std::int64_t* key, const T* x, std::int64_t width,
              std::int64_t edge_offset, bool accumulate, const MaxState<T>& out);

// Backward of spmm_max, over the transpose: row u lists the destinations of the edges out of u,
// and edge[k] is the position of that edge in the forward graph.
// out[u] (+)= sum over k in row u of grad[v] where arg[v] == edge_offset + edge[k], v = indices[k].
template <typename T>
void spmm_max_backward(const CsrView& transpose, const std::int64_t* edge, const std::int64_t* arg,
                       const T* grad, std::int64_t width, std::int64_t edge_offset,
                       bool accumulate, T* out);

}  // namespace distgnn
