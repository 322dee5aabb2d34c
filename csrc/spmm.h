// Aggregation over neighbours (SpMM): a sum of source rows per destination row.
//
// Dense matrices are row-major and contiguous: x is (num_sources, width), out is
// (graph.num_rows, width). T is float or double. out may not overlap an input.
//
// Threads: a destination row has one owner, which adds its neighbours in CSR order. No result
// depends on the number of threads or on the instruction set. Nothing is allocated.
//
// Variant: rows over threads, features in registers. Up to 1 KiB of the destination row is kept in
// registers while all its neighbours are read, so that out is written once; source rows are
// prefetched some edges ahead, because they are what the kernel waits for. A walk order
// (walk_order.h) brings rows with common sources together.
#pragma once

#include <cstdint>

#include "csr.h"
#include "number.h"
#include "schedule.h"

namespace distgnn {

// Factors of a sum; null for ones. There are some of edges or some of sources, not both.
template <typename T>
struct SumFactors {
  const T* edge;    // (num_edges,) of each source row, in the order of the graph
  const T* row;     // (num_rows,) of each finished sum
  const T* source;  // (num_sources,) of each source row, wherever it goes
};

// out[v] = factors.row[v] * sum over k in row v of factor(k) * x[indices[k]], where factor(k) is
// factors.edge[k] or factors.source[indices[k]], and the sum starts from out[v] instead of zero if
// accumulate is true. X is how x is stored, O how out is, T what is computed with: float, float,
// float; all double; or Bf16 rows, sums in float stored as either. With a walk order that cuts
// rows, sums stored as Bf16 would be rounded between the pieces: such a call walks the graph
// without it.
template <typename X, typename T, typename O>
void spmm_sum(const CsrView& graph, const WalkOrderView& walk, const SumFactors<T>& factors,
              const X* x, std::int64_t width, bool accumulate, O* out);

}  // namespace distgnn
