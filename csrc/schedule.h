// The order in which a kernel walks a graph, and how that walk is divided among threads.
//
// A segment is a run of edges of one row, all of them unless the walk order cuts rows by blocks of
// sources. The segments of a row stand in one task, in CSR order, so one thread owns the row and
// adds its edges in the order of the graph: a walk order changes the time of a kernel and not one
// bit of its result.
#pragma once

#include <algorithm>
#include <cstdint>

#include "csr.h"
#include "isa.h"

namespace distgnn {

// What was derived from a graph once (see walk_order.h). A view; without a walk order all pointers
// are null and a row is a segment.
struct WalkOrderView {
  const std::int32_t* row = nullptr;      // (num_segments,) row of each segment
  const std::uint8_t* ends = nullptr;     // (num_segments,) kStarts and kEnds
  const std::int64_t* begin = nullptr;    // (num_segments + 1,) first edge of each in indices
  const std::int64_t* edge = nullptr;     // (num_segments,) position of that edge in the graph
  const std::int32_t* indices = nullptr;  // (num_edges,) sources in the order of the segments
  const std::int64_t* task = nullptr;     // (num_tasks + 1,) first segment of each task
  std::int64_t num_tasks = 0;
  std::int64_t num_long = 0;  // the last tasks: one row each, too long for one thread
};

inline constexpr std::uint8_t kStarts = 1;  // the segment holds the first edge of its row
inline constexpr std::uint8_t kEnds = 2;    // the segment holds the last one

struct Segment {
  std::int64_t row;
  std::int64_t begin;  // of its edges in Schedule::indices
  std::int64_t end;
  std::int64_t edge;  // position of the first of them in the graph
  bool starts;
  bool ends;
};

struct Schedule {
  WalkOrderView walk;
  const std::int64_t* begin;
  const std::int32_t* indices;
  std::int64_t num_segments;
  std::int64_t num_edges;

  Schedule(const CsrView& graph, const WalkOrderView& given) : walk(given) {
    const bool is_ordered = walk.row != nullptr;
    begin = is_ordered ? walk.begin : graph.indptr;
    indices = is_ordered ? walk.indices : graph.indices;
    num_segments = walk.task != nullptr ? walk.task[walk.num_tasks] : graph.num_rows;
    num_edges = graph.indptr[graph.num_rows];
  }

  DISTGNN_INLINE Segment segment(std::int64_t s) const {
    if (walk.row == nullptr) return {s, begin[s], begin[s + 1], begin[s], true, true};
    return {walk.row[s],
            begin[s],
            begin[s + 1],
            walk.edge[s],
            (walk.ends[s] & kStarts) != 0,
            (walk.ends[s] & kEnds) != 0};
  }

  // Edges from a segment's edge to the one to prefetch: 0, the edge itself, at the graph's end.
  DISTGNN_INLINE std::int64_t distance(std::int64_t end, std::int64_t wanted) const {
    return end + wanted <= num_edges ? wanted : 0;
  }
};

// Edges between the prefetch of a source row and its use: as many as fill a quarter of the first
// cache. Half of it threw out rows that were to be read again: on Zen 4 with 32 KiB a quarter was
// faster on four of five graphs at widths 32 to 256, by 1.2 times on Reddit's twin. On Zen 5 with
// 48 KiB a third was: rows of 64 bytes gained 1.8 times from 128 edges instead of 32, those of 256
// bytes 1.2 times from 64, those of 1 KiB lost beyond 16.
DISTGNN_INLINE std::int64_t prefetch_distance(std::int64_t row_bytes) {
  const std::int64_t ahead = level_1_bytes() / 4;
  return std::clamp<std::int64_t>(ahead / std::max<std::int64_t>(row_bytes, 1), 12, 128);
}

// What to prefetch for an edge: the row of the edge so many further on, and of that row, beside
// every 64th byte, the column `end` unless it is 0.
struct Ahead {
  std::int64_t distance;
  std::int64_t end;
};

// The last of num_columns columns if it may lie on a cache line of its own, because rows begin
// anywhere on a line; else 0.
template <typename X>
DISTGNN_INLINE std::int64_t column_beyond(const X* x, std::int64_t width,
                                          std::int64_t num_columns) {
  const auto row_bytes = static_cast<std::uintptr_t>(width) * sizeof(X);
  const std::uintptr_t step = std::clamp<std::uintptr_t>(row_bytes, 1, 64);
  const bool is_aligned =
      64 % step == 0 && row_bytes % step == 0 && reinterpret_cast<std::uintptr_t>(x) % step == 0;
  return is_aligned ? 0 : num_columns - 1;
}

// Segments between the prefetch of a row of out and its use.
inline constexpr std::int64_t kSegmentsAhead = 2;

// Calls leaf(begin, end, part, num_parts) for ranges of segments that cover all of them, on all
// threads. Rows of their own task, too long for one thread, are given num_parts times: the leaf
// computes the part-th of num_parts groups of columns.
template <typename Leaf>
void for_tasks(const Schedule& schedule, int num_column_groups, const Leaf& leaf) {
  const WalkOrderView& walk = schedule.walk;
  if (walk.task == nullptr) {
    for_row_blocks(schedule.num_segments,
                   [&](std::int64_t begin, std::int64_t end) { leaf(begin, end, 0, 1); });
    return;
  }
  const std::int64_t num_short = walk.num_tasks - walk.num_long;
  const std::int64_t num_units = walk.num_long * num_column_groups + num_short;
#pragma omp parallel for schedule(dynamic) if (num_units > 1)
  for (std::int64_t unit = 0; unit < num_units; ++unit) {
    // The long ones first: whoever is left with one at the end keeps all others waiting.
    const std::int64_t first = walk.num_long * num_column_groups;
    const bool is_long = unit < first;
    const std::int64_t task = is_long ? num_short + unit / num_column_groups : unit - first;
    leaf(walk.task[task], walk.task[task + 1],
         is_long ? static_cast<int>(unit % num_column_groups) : 0, is_long ? num_column_groups : 1);
  }
}

}  // namespace distgnn
