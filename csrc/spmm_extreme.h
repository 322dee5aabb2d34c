// The largest or smallest source value per destination row and column, and which source had it.
//
// The winner is remembered as the row of x it came from: 4 bytes, and a backward that adds one
// value per result. merge_max.h joins what was found over different edges of the same rows.
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
void spmm_extreme(const CsrView& graph, const WalkOrderView& walk, const T* x,
                  std::int64_t num_sources, std::int64_t width, bool is_max, T* out,
                  std::int32_t* source);

// The gradient of maxima or minima, (num_rows, width), and whose they are.
template <typename T>
struct ExtremeGrad {
  const T* value;
  const std::int32_t* source;
  std::int32_t first_source;  // number of row 0 of out among the sources; others are passed over
  std::int64_t num_rows;
};

// Backward: out[source[v][j] - first_source][j] += grad[v][j]; started from zero unless accumulate
// is true. out is (transpose.num_rows, width). The transpose lists the rows that each source row
// has an edge to.
// Where edges are few, each row of out has one owner, which reads the results it went into. Where
// they are many, a thread owns some columns of out and walks all of grad, adding in scratch. One
// adds in the order of the transpose, the other in that of v; the graph and the width decide which.
template <typename T>
void spmm_extreme_backward(const CsrView& transpose, const WalkOrderView& walk,
                           const ExtremeGrad<T>& grad, std::int64_t width, bool accumulate,
                           T* scratch, T* out);

// Length of the scratch that the backward needs for num_rows rows of grad, with as many threads as
// the next parallel region has; at most about the size of out.
std::int64_t extreme_scratch(const CsrView& transpose, std::int64_t num_rows, std::int64_t width);

}  // namespace distgnn
