// The largest or smallest source value per destination row and column, and which source had it.
//
// For graphs whose rows are complete on this rank. Unlike spmm_max it remembers the winner's row in
// 4 bytes instead of an edge and a key in 16: half the traffic forward, and a backward that adds
// one value per result instead of reading one per edge.
#pragma once

#include <cstdint>

#include "csr.h"
#include "schedule.h"

namespace distgnn {

// out[v] = max (or min) over k in row v of x[indices[k]], element by element, and source[v] the row
// of x it came from: of equal values the first in the row, of NaN and a number the NaN. Without an
// edge the result is 0 and its source -1. x is (num_sources, width), out and source are
// (num_rows, width). A destination row has one owner.
template <typename T>
void spmm_extreme(const CsrView& graph, const PlanView& plan, const T* x, std::int64_t num_sources,
                  std::int64_t width, bool is_max, T* out, std::int32_t* source);

// Backward: out[source[v][j]][j] += grad[v][j], v ascending; started from zero unless accumulate is
// true. source and grad are (num_rows, width), out is (transpose.num_rows, width). The transpose
// lists, ascending, the rows that each source row has an edge to.
// Where edges are few, each row of out has one owner, which reads the results it went into. Where
// they are many, a thread owns some columns of some rows of out and walks all of grad. Both add in
// the same order.
template <typename T>
void spmm_extreme_backward(const CsrView& transpose, const PlanView& plan,
                           const std::int32_t* source, const T* grad, std::int64_t num_rows,
                           std::int64_t width, bool accumulate, T* out);

}  // namespace distgnn
