// Walk orders: what is derived from a graph once, so that every aggregation over it is faster.
//
// A kernel waits for source rows, so a walk order brings rows that share sources together in time:
// - order: rows are walked cluster by cluster, where that lowers the number of different sources
//   per stretch of edges; clusters come from size-constrained label propagation;
// - blocks: rows with many edges are cut by blocks of sources, so that a block stays in cache while
//   a group of rows reads it;
// - tasks hold equal numbers of edges instead of rows; a row longer than several tasks is set
//   apart, and its columns are divided among threads.
// The vertices keep their ids and the edges of a row their order: results have the same bits.
//
// Making one allocates, takes the time of a few aggregations, and runs on one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule.h"

namespace distgnn {

struct WalkOrder {
  // As in WalkOrderView. All but task are empty if the rows are best walked as they are numbered.
  std::vector<std::int32_t> row;
  std::vector<std::uint8_t> ends;
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> edge;
  std::vector<std::int32_t> indices;
  std::vector<std::int64_t> task;
  std::int64_t num_long = 0;
  std::int64_t num_rows = 0;  // of the graph, as num_edges
  std::int64_t num_edges = 0;
  bool is_clustered = false;
  bool is_cut = false;
  // Different sources per edge in a stretch of edges, before and after: how often a source row
  // comes from beyond the caches.
  double sources_per_edge = 0;
  double ordered_sources_per_edge = 0;
};

// The walk order as a kernel sees it.
WalkOrderView view_of(const WalkOrder& walk);

// What a walk order does; without a value it is decided by what the graph has.
struct WalkOptions {
  std::optional<bool> clusters;  // walk rows cluster by cluster
  std::optional<bool> blocks;    // cut rows by blocks of sources
};

// Orders the walk over a graph. Rows are clustered only if rows and sources are the same vertices,
// which is taken from their number, and cut only if there are two blocks and sources ascend in
// every row, whatever the options: by number, or by (num_sources,) rank where that is given,
// different numbers below num_sources.
WalkOrder make_walk_order(const CsrView& graph, std::int64_t num_sources,
                          const WalkOptions& options = {}, const std::int32_t* rank = nullptr);

}  // namespace distgnn
