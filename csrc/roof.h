// The roof of an aggregation: the time in which its source rows can be read at all.
#pragma once

#include "csr.h"
#include "schedule.h"

namespace distgnn {

// Reads the source row of every edge, in the order of spmm_sum with the same walk order and with
// its prefetching, and adds the vectors up. out is (graph.num_rows, 16); of each task one row is
// written, so that nothing is optimised away. width must be at least 16.
void gather_roof(const CsrView& graph, const WalkOrderView& walk, const float* x,
                 std::int64_t width, float* out);

}  // namespace distgnn
