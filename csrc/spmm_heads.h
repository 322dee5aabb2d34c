// Sums of source rows with a weight for every edge and head.
//
// Threads: a destination row has one owner, which adds its edges in CSR order; the heads of a row
// too long for one thread are divided among several. Nothing is allocated.
#pragma once

#include <cstdint>

#include "csr.h"
#include "schedule.h"

namespace distgnn {

// out[v, h] = sum over k in row v of weight[k, h] * x[indices[k], h], the sum started from out[v,
// h] instead of zero if accumulate is true; h is a head of `width` columns. weight is
// (num_edges, num_heads), in the order of the graph; x is (num_sources, num_heads * width), out
// (num_rows, num_heads * width). T is float or double.
template <typename T>
void spmm_heads(const CsrView& graph, const WalkOrderView& walk, const T* weight,
                std::int64_t num_heads, const T* x, std::int64_t width, bool accumulate, T* out);

}  // namespace distgnn
