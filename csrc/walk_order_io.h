// Walk orders that outlive the process: what must be kept of one, and how it becomes one again.
//
// A walk order divides rows into segments and segments into tasks; everything else in it is a copy
// of the graph in that order. So the division alone is kept, a few bytes a row, and sources are
// taken from the graph again: whatever the division says, a kernel reads no edge that the graph
// does not have.
#pragma once

#include <cstdint>

#include "csr.h"
#include "walk_order.h"

namespace distgnn {

// The division of a graph's rows, as somebody claims it to be. A view.
struct Layout {
  const std::int32_t* row;    // (num_segments,) row of each segment
  const std::int64_t* begin;  // (num_segments + 1,) edges before each segment
  std::int64_t num_segments;  // 0 if the rows are walked as they are numbered
  const std::int64_t* task;   // (num_tasks + 1,) first segment of each task
  std::int64_t num_tasks;
  std::int64_t num_long;
  // What the walk order says of itself; nothing depends on it.
  bool is_clustered;
  double sources_per_edge;
  double ordered_sources_per_edge;
};

// Makes the walk order of a layout. Returns what is wrong with the layout, with `walk` undefined
// then, or null. A sound one gives every edge to one segment, in the order of its row, and all
// segments of a row to one task.
const char* restore_walk_order(const CsrView& graph, const Layout& layout, WalkOrder* walk);

}  // namespace distgnn
