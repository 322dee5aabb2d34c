// Algorithm: label propagation finds clusters; rows are cut by blocks of sources; tasks get equal
//   edges.
// Formula: the order with the fewer different sources per stretch of edges is kept.
// Source: Raghavan et al., "Near linear time algorithm to detect community structures", 2007.
#include "walk_order.h"

#include <numeric>

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint8_t;

// Label propagation settles most vertices in its first two rounds.
constexpr int kRounds = 4;
// Vertices of a cluster: their rows of 1 KiB fill a level-2 cache once or twice.
constexpr int64_t kClusterSize = 2000;
// A graph this dense keeps larger clusters: few of them already hold all its sources.
constexpr int64_t kDenseClusterSize = 8000;
// Edges of the stretches in which different sources are counted, and every how many is counted.
constexpr int64_t kStretch = 65536;
constexpr int64_t kSampled = 4;
// An order must save this much to be worth its own copy of the indices.
constexpr double kWorthwhile = 0.9;
// Sources of a block and rows of a group. Measured on Reddit at a quarter of its size, width 256:
// blocks of 4096, 8192, 16384 sources and none take 1, 1.07, 1.15 and 1.5 units of time.
constexpr int64_t kBlockSources = 4096;
constexpr int64_t kGroupRows = 2048;
// Edges a row must have in a block on average, to pay for another read and write of its sums.
constexpr int64_t kEdgesPerPiece = 8;
constexpr int64_t kMinTaskEdges = 4096;
constexpr int64_t kMaxTaskEdges = 65536;
constexpr int64_t kTasks = 512;
// Tasks' worth of edges that make a row a long one.
constexpr int64_t kLongTasks = 8;

int64_t degree(const CsrView& graph, int64_t row) {
  return graph.indptr[row + 1] - graph.indptr[row];
}

// A label per vertex: that of most of its neighbours, unless their cluster is full. Vertices take
// their turns in order of id, so the outcome is a function of the graph.
// Raghavan, Albert and Kumara, "Near linear time algorithm to detect community structures", 2007.
std::vector<int32_t> clusters(const CsrView& graph, int64_t largest) {
  const auto num_rows = static_cast<std::size_t>(graph.num_rows);
  std::vector<int32_t> label(num_rows), count(num_rows, 0), size(num_rows, 1), seen;
  std::iota(label.begin(), label.end(), 0);
  for (int round = 0; round < kRounds; ++round) {
    for (int64_t v = 0; v < graph.num_rows; ++v) {
      seen.clear();
      for (int64_t k = graph.indptr[v]; k < graph.indptr[v + 1]; ++k) {
        const int32_t other = label[graph.indices[k]];
        if (count[other]++ == 0) seen.push_back(other);
      }
      const int32_t own = label[v];
      int32_t best = own;
      for (const int32_t other : seen) {
        const bool is_open = other == own || size[other] < largest;
        const bool is_first = count[other] == count[best] && best != own && other < best;
        if (is_open && (count[other] > count[best] || is_first)) best = other;
      }
      for (const int32_t other : seen) count[other] = 0;
      --size[own];
      ++size[best];
      label[v] = best;
    }
  }
  return label;
}

// Vertices by label, ascending within one.
std::vector<int32_t> order_by(const std::vector<int32_t>& label) {
  std::vector<int64_t> first(label.size() + 1, 0);
  for (const int32_t value : label) ++first[value + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<int32_t> order(label.size());
  for (std::size_t v = 0; v < label.size(); ++v) {
    order[first[label[v]]++] = static_cast<int32_t>(v);
  }
  return order;
}

std::vector<int32_t> order_of_ids(int64_t num_rows) {
  std::vector<int32_t> order(static_cast<std::size_t>(num_rows));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Different sources per edge, over a sample of the stretches of the walk.
double sources_per_edge(const CsrView& graph, int64_t all_sources,
                        const std::vector<int32_t>& order) {
  std::vector<int32_t> stretch_of(static_cast<std::size_t>(all_sources), -1);
  int64_t num_sources = 0, num_edges = 0, position = 0;
  for (const int32_t row : order) {
    const auto stretch = static_cast<int32_t>(position / kStretch);
    position += degree(graph, row);
    if (stretch % kSampled != 0) continue;
    num_edges += degree(graph, row);
    for (int64_t k = graph.indptr[row]; k < graph.indptr[row + 1]; ++k) {
      num_sources += stretch_of[graph.indices[k]] != stretch;
      stretch_of[graph.indices[k]] = stretch;
    }
  }
  return num_edges == 0 ? 0 : static_cast<double>(num_sources) / static_cast<double>(num_edges);
}

int64_t task_edges(const CsrView& graph) {
  const int64_t num_edges = graph.indptr[graph.num_rows];
  return std::clamp(num_edges / kTasks, kMinTaskEdges, kMaxTaskEdges);
}

// Moves the rows that are too long for one thread to the end.
int64_t set_long_apart(const CsrView& graph, std::vector<int32_t>* order) {
  const int64_t limit = kLongTasks * task_edges(graph);
  const auto first_long = std::stable_partition(
      order->begin(), order->end(), [&](int32_t row) { return degree(graph, row) <= limit; });
  return order->end() - first_long;
}

// Appends the edges [from, to) of a row as a segment.
void append(const CsrView& graph, int32_t row, int64_t from, int64_t to, WalkOrder* walk) {
  const bool starts = from == graph.indptr[row];
  const bool ends = to == graph.indptr[row + 1];
  walk->row.push_back(row);
  walk->ends.push_back(static_cast<uint8_t>((starts ? kStarts : 0) | (ends ? kEnds : 0)));
  walk->edge.push_back(from);
  walk->indices.insert(walk->indices.end(), graph.indices + from, graph.indices + to);
  walk->begin.push_back(static_cast<int64_t>(walk->indices.size()));
}

// Whole rows, in tasks of about equal numbers of edges.
void lay_rows(const CsrView& graph, const std::vector<int32_t>& order, int64_t num_whole,
              WalkOrder* walk) {
  int64_t num_edges = 0;
  for (int64_t i = 0; i < num_whole; ++i) {
    append(graph, order[i], graph.indptr[order[i]], graph.indptr[order[i] + 1], walk);
    num_edges += degree(graph, order[i]);
    if (num_edges >= task_edges(graph)) {
      walk->task.push_back(static_cast<int64_t>(walk->row.size()));
      num_edges = 0;
    }
  }
}

// Where a source stands in the order in which rows list them.
struct Ranks {
  const int32_t* rank;  // null where they are listed by number

  int64_t operator()(int32_t source) const { return rank == nullptr ? source : rank[source]; }
};

// Groups of rows, each cut by blocks of sources: a task a group. Ranks ascend in a row.
void lay_blocks(const CsrView& graph, int64_t num_sources, const Ranks& rank,
                const std::vector<int32_t>& order, int64_t num_whole, WalkOrder* walk) {
  std::vector<int64_t> next(static_cast<std::size_t>(kGroupRows));
  for (int64_t group = 0; group < num_whole; group += kGroupRows) {
    const int64_t num_rows = std::min(kGroupRows, num_whole - group);
    for (int64_t i = 0; i < num_rows; ++i) next[i] = graph.indptr[order[group + i]];
    for (int64_t block_end = kBlockSources;; block_end += kBlockSources) {
      for (int64_t i = 0; i < num_rows; ++i) {
        const int32_t row = order[group + i];
        const int64_t end = graph.indptr[row + 1];
        const auto* from = graph.indices + next[i];
        const auto is_before = [&](int32_t source, int64_t limit) { return rank(source) < limit; };
        const auto* first_after = std::lower_bound(from, graph.indices + end, block_end, is_before);
        const int64_t to = first_after - graph.indices;
        // A row without edges is a segment too: its sum must be written.
        const bool is_empty = degree(graph, row) == 0 && block_end == kBlockSources;
        if (to > next[i] || is_empty) append(graph, row, next[i], to, walk);
        next[i] = to;
      }
      if (block_end >= num_sources) break;
    }
    walk->task.push_back(static_cast<int64_t>(walk->row.size()));
  }
}

bool is_ascending(const CsrView& graph, const Ranks& rank) {
  const auto is_before = [&](int32_t one, int32_t other) { return rank(one) < rank(other); };
  for (int64_t row = 0; row < graph.num_rows; ++row) {
    const auto* first = graph.indices + graph.indptr[row];
    if (!std::is_sorted(first, graph.indices + graph.indptr[row + 1], is_before)) return false;
  }
  return true;
}

// Tasks over the rows as they are numbered; nothing else is needed.
void divide_ids(const CsrView& graph, WalkOrder* walk) {
  int64_t first_edge = 0;
  for (int64_t row = 0; row < graph.num_rows; ++row) {
    if (graph.indptr[row + 1] - first_edge < task_edges(graph)) continue;
    walk->task.push_back(row + 1);
    first_edge = graph.indptr[row + 1];
  }
  if (walk->task.back() < graph.num_rows) walk->task.push_back(graph.num_rows);
}

}  // namespace

WalkOrderView view_of(const WalkOrder& walk) {
  WalkOrderView view;
  view.task = walk.task.data();
  view.num_tasks = static_cast<int64_t>(walk.task.size()) - 1;
  view.num_long = walk.num_long;
  if (walk.row.empty()) return view;
  view.row = walk.row.data();
  view.ends = walk.ends.data();
  view.begin = walk.begin.data();
  view.edge = walk.edge.data();
  view.indices = walk.indices.data();
  return view;
}

WalkOrder make_walk_order(const CsrView& graph, int64_t num_sources, const WalkOptions& options,
                          const int32_t* source_rank) {
  const Ranks rank{source_rank};
  const int64_t num_edges = graph.indptr[graph.num_rows];
  WalkOrder walk;
  walk.task.push_back(0);
  walk.num_rows = graph.num_rows;
  walk.num_edges = num_edges;
  if (graph.num_rows == 0) return walk;
  const int64_t num_blocks = (num_sources + kBlockSources - 1) / kBlockSources;
  const bool has_pieces = num_edges / graph.num_rows >= kEdgesPerPiece * num_blocks;
  const bool is_dense =
      num_blocks > 1 && options.blocks.value_or(has_pieces) && is_ascending(graph, rank);
  std::vector<int32_t> order = order_of_ids(graph.num_rows);
  walk.sources_per_edge = sources_per_edge(graph, num_sources, order);
  walk.ordered_sources_per_edge = walk.sources_per_edge;
  walk.is_cut = is_dense;
  if (num_sources == graph.num_rows && options.clusters.value_or(true)) {
    std::vector<int32_t> clustered =
        order_by(clusters(graph, is_dense ? kDenseClusterSize : kClusterSize));
    const double clustered_sources = sources_per_edge(graph, num_sources, clustered);
    walk.is_clustered =
        options.clusters.value_or(clustered_sources < kWorthwhile * walk.sources_per_edge);
    if (walk.is_clustered) {
      order = std::move(clustered);
      walk.ordered_sources_per_edge = clustered_sources;
    }
  }
  walk.num_long = set_long_apart(graph, &order);
  if (!walk.is_clustered && !is_dense && walk.num_long == 0) {
    divide_ids(graph, &walk);
    return walk;
  }
  walk.begin.push_back(0);
  walk.indices.reserve(static_cast<std::size_t>(num_edges));
  const int64_t num_whole = graph.num_rows - walk.num_long;
  if (is_dense) {
    lay_blocks(graph, num_sources, rank, order, num_whole, &walk);
  } else {
    lay_rows(graph, order, num_whole, &walk);
  }
  const auto num_segments = static_cast<int64_t>(walk.row.size());
  if (walk.task.back() < num_segments) walk.task.push_back(num_segments);
  for (int64_t i = num_whole; i < graph.num_rows; ++i) {
    append(graph, order[i], graph.indptr[order[i]], graph.indptr[order[i] + 1], &walk);
    walk.task.push_back(static_cast<int64_t>(walk.row.size()));
  }
  return walk;
}

}  // namespace distgnn
