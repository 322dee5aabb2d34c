// Algorithm: the division of rows is checked against the graph, and edges are copied in its order.
// Formula: segments of a row are disjoint and cover it; anything else is refused.
// Source: ours.
#include "walk_order_io.h"

#include <algorithm>

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint8_t;

const char* check_tasks(const int64_t* task, int64_t num_tasks, int64_t num_segments) {
  if (task[0] != 0 || task[num_tasks] != num_segments) return "its tasks leave segments out";
  if (!std::is_sorted(task, task + num_tasks + 1)) return "its tasks overlap";
  return nullptr;
}

// Places the segments: fills row, ends, begin, edge and task, which are as long as they must be.
const char* place(const CsrView& graph, const Layout& layout, WalkOrder* walk) {
  std::vector<int64_t> next(graph.indptr, graph.indptr + graph.num_rows);
  std::vector<int64_t> owner(static_cast<std::size_t>(graph.num_rows), -1);
  int64_t num_finished = 0;
  for (int64_t t = 0; t < layout.num_tasks; ++t) {
    for (int64_t s = layout.task[t]; s < layout.task[t + 1]; ++s) {
      const int64_t row = layout.row[s];
      if (row < 0 || row >= graph.num_rows) return "it names a row that the graph does not have";
      const bool starts = owner[row] < 0;
      if (!starts && owner[row] != t) return "its tasks share a row";
      owner[row] = t;
      const int64_t left = graph.indptr[row + 1] - next[row];
      const int64_t length = layout.begin[s + 1] - layout.begin[s];
      const bool ends = length == left;
      // An empty segment stands for a row without edges, and there once.
      if (length > left || (length == 0 && !(starts && ends))) {
        return "its segments are not the edges of their rows";
      }
      walk->ends[s] = static_cast<uint8_t>((starts ? kStarts : 0) | (ends ? kEnds : 0));
      walk->edge[s] = next[row];
      next[row] += length;
      num_finished += ends;
    }
  }
  return num_finished == graph.num_rows ? nullptr : "it leaves edges out";
}

void copy_sources(const CsrView& graph, WalkOrder* walk) {
  const auto num_tasks = static_cast<int64_t>(walk->task.size()) - 1;
#pragma omp parallel for schedule(dynamic)
  for (int64_t t = 0; t < num_tasks; ++t) {
    for (int64_t s = walk->task[t]; s < walk->task[t + 1]; ++s) {
      std::copy_n(graph.indices + walk->edge[s], walk->begin[s + 1] - walk->begin[s],
                  walk->indices.data() + walk->begin[s]);
    }
  }
}

}  // namespace

const char* restore_walk_order(const CsrView& graph, const Layout& layout, WalkOrder* walk) {
  const int64_t num_edges = graph.indptr[graph.num_rows];
  const bool is_by_id = layout.num_segments == 0;
  const int64_t num_segments = is_by_id ? graph.num_rows : layout.num_segments;
  if (layout.num_tasks < 0) return "it has no tasks";
  if (const char* problem = check_tasks(layout.task, layout.num_tasks, num_segments)) {
    return problem;
  }
  if (layout.num_long < 0 || layout.num_long > layout.num_tasks) {
    return "its long rows are no tasks";
  }
  walk->task.assign(layout.task, layout.task + layout.num_tasks + 1);
  walk->num_long = layout.num_long;
  walk->num_rows = graph.num_rows;
  walk->num_edges = num_edges;
  walk->is_clustered = layout.is_clustered;
  walk->is_cut = num_segments != graph.num_rows;
  walk->sources_per_edge = layout.sources_per_edge;
  walk->ordered_sources_per_edge = layout.ordered_sources_per_edge;
  if (is_by_id) return nullptr;
  if (layout.begin[0] != 0 || layout.begin[num_segments] != num_edges) return "it leaves edges out";
  if (!std::is_sorted(layout.begin, layout.begin + num_segments + 1)) {
    return "its segments overlap";
  }
  walk->ends.resize(static_cast<std::size_t>(num_segments));
  walk->edge.resize(static_cast<std::size_t>(num_segments));
  if (const char* problem = place(graph, layout, walk)) return problem;
  walk->row.assign(layout.row, layout.row + num_segments);
  walk->begin.assign(layout.begin, layout.begin + num_segments + 1);
  walk->indices.resize(static_cast<std::size_t>(num_edges));
  copy_sources(graph, walk);
  return nullptr;
}

}  // namespace distgnn
