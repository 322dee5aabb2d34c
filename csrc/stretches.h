// Segments in stretches whose edges fit into a buffer on the stack.
#pragma once

#include <algorithm>
#include <cstdint>

#include "schedule.h"

namespace distgnn {

// Segments [begin, end) of a schedule; of their edges those in [first_edge, end_edge).
struct Stretch {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t first_edge;
  std::int64_t end_edge;

  // What the stretch has of a segment.
  DISTGNN_INLINE Segment clip(Segment s) const {
    s.starts = s.starts && s.begin >= first_edge;
    s.ends = s.ends && s.end <= end_edge;
    const std::int64_t from = std::max(s.begin, first_edge);
    s.edge += from - s.begin;
    s.begin = from;
    s.end = std::min(s.end, end_edge);
    return s;
  }

  DISTGNN_INLINE std::int64_t num_edges() const { return end_edge - first_edge; }
};

// Calls body(stretch, is_piece) for stretches of at most max_edges edges that cover the segments
// [begin, end) in their order. A segment of more edges is given in pieces, one after the other.
template <typename Body>
void for_stretches(const Schedule& schedule, std::int64_t begin, std::int64_t end,
                   std::int64_t max_edges, const Body& body) {
  const std::int64_t* edge = schedule.begin;
  for (std::int64_t i = begin; i < end;) {
    std::int64_t next = i + 1;
    while (next < end && edge[next + 1] - edge[i] <= max_edges) ++next;
    const bool is_piece = edge[next] - edge[i] > max_edges;
    if (!is_piece) body(Stretch{i, next, edge[i], edge[next]}, false);
    for (std::int64_t from = edge[i]; is_piece && from < edge[next]; from += max_edges) {
      body(Stretch{i, next, from, std::min(from + max_edges, edge[next])}, true);
    }
    i = next;
  }
}

}  // namespace distgnn
