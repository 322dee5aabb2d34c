// A graph as the kernels see it, and the one way they divide it among threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace distgnn {

// Row v lists the sources of the edges into v (or, in the transpose, the destinations of the edges
// out of v) at indices[indptr[v]] .. indices[indptr[v + 1] - 1]. A view: it owns nothing.
// Preconditions, checked where a graph is loaded: indptr starts at 0 and never falls, and every
// index is a row of the matrix that is read.
struct CsrView {
  const std::int64_t* indptr;   // (num_rows + 1,)
  const std::int32_t* indices;  // (indptr[num_rows],)
  std::int64_t num_rows;
};

// Rows a thread takes at a time: few enough to balance rows of very different length, many enough
// that taking them costs nothing (0.1 us against at least 5 us of work at degree 2 and width 64).
inline constexpr std::int64_t kRowsPerTask = 128;

// Calls leaf(begin, end) for blocks that cover [0, num_rows), in any order, on all threads. A block
// has one owner, so a leaf that writes only its own rows gives the same bits for any number of
// threads. A single block runs on the calling thread, without a parallel region.
template <typename Leaf>
void for_row_blocks(std::int64_t num_rows, const Leaf& leaf) {
  const std::int64_t num_tasks = (num_rows + kRowsPerTask - 1) / kRowsPerTask;
#pragma omp parallel for schedule(dynamic) if (num_tasks > 1)
  for (std::int64_t task = 0; task < num_tasks; ++task) {
    leaf(task * kRowsPerTask, std::min(num_rows, (task + 1) * kRowsPerTask));
  }
}

}  // namespace distgnn
