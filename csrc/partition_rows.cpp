// Algorithm: label propagation with bounded sizes, and local search, over rows that come from disk in
//   order; what neighbours have lies all over memory, and is fetched before it is needed.
// Source: Akhremtsev, Sanders and Schulz, "(Semi-)external algorithms for graph partitioning and
//   clustering", ALENEX 2015; Gottesbueren, Heuer, Sanders, Schulz and Seemaier, "Deep multilevel
//   graph partitioning", ESA 2021 (vertices that are alone).
#include "partition_rows.h"

#include <array>
#include <limits>

#include "partition_growth.h"
#include "partition_tally.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

constexpr int32_t kNone = -1;

// Visits the entries of a row with what their neighbours have.
template <typename Visit>
void each_neighbor(const RowsView& rows, int64_t row, Array<int32_t> table, Visit&& visit) {
  const int64_t last = rows.neighbor.size - 1;
  for (int64_t k = rows.indptr[row]; k < rows.indptr[row + 1]; ++k) {
    __builtin_prefetch(&table[rows.neighbor[std::min(k + kAhead, last)]]);
    visit(table[rows.neighbor[k]], rows.weight[k]);
  }
}

void add_row(const RowsView& rows, int64_t row, Array<int32_t> label, Tally& tally) {
  each_neighbor(rows, row, label, [&](int32_t group, int64_t weight) { tally.add(group, weight); });
}

// What a vertex adds to its part: vertices and ends of edges.
using Own = std::array<int64_t, 2>;

bool has_room(const PartsView& parts, int64_t goal, const Own& own) {
  return parts.load[0][goal] + own[0] <= parts.limit[0] &&
         parts.load[1][goal] + own[1] <= parts.limit[1];
}

// The part whose fuller measure is the least full.
int64_t emptiest(const PartsView& parts) {
  int64_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t part = 0; part < parts.tally.size; ++part) {
    double fill = 0.0;
    for (int64_t measure = 0; measure < 2; ++measure) {
      fill = std::max(fill, static_cast<double>(parts.load[measure][part]) /
                                static_cast<double>(parts.limit[measure]));
    }
    if (fill < least) {
      best = part;
      least = fill;
    }
  }
  return best;
}

// The part that a vertex goes to; its own if it stays. The tally has the weights of its row.
int64_t goal_of(const RowsView& rows, int64_t row, const PartsView& parts, int64_t home,
                const Own& own, int64_t price) {
  const bool is_over =
      parts.load[0][home] > parts.limit[0] || parts.load[1][home] > parts.limit[1];
  int64_t best = home, most = is_over ? -1 : parts.tally[home];
  for (int64_t k = rows.indptr[row]; k < rows.indptr[row + 1]; ++k) {
    const int64_t goal = parts.part[rows.neighbor[k]];
    if (goal == home || parts.tally[goal] < most) continue;
    // Among equal ones its own stays, else the first part.
    if (parts.tally[goal] == most && (best == home || best <= goal)) continue;
    if (!has_room(parts, goal, own)) continue;
    best = goal;
    most = parts.tally[goal];
  }
  if (!is_over) return best;
  if (best == home) {
    best = emptiest(parts);
    most = 0;
  }
  return parts.tally[home] - most > price || !has_room(parts, best, own) ? home : best;
}

}  // namespace

int64_t join_clusters(const RowsView& rows, const JoinedView& clusters, int64_t most,
                      uint64_t seed) {
  const uint64_t start = mix(seed);
  Tally tally;
  int64_t num_moves = 0;
  for (int64_t row = 0; row + 1 < rows.indptr.size; ++row) {
    add_row(rows, row, clusters.label, tally);
    const int64_t vertex = rows.first + row, own = clusters.own[vertex];
    const int32_t current = clusters.label[vertex];
    int32_t best = current;
    int64_t heaviest = 0;
    uint64_t highest = 0;
    tally.drain([&](int32_t label, int64_t total) {
      if (total < heaviest) return;
      if (label != current && clusters.size[label] + own > most) return;
      const uint64_t rank = mix(start ^ static_cast<uint64_t>(label));
      if (total == heaviest && rank <= highest) return;
      best = label;
      heaviest = total;
      highest = rank;
    });
    if (best == current) continue;
    clusters.size[current] -= own;
    clusters.size[best] += own;
    clusters.label[vertex] = best;
    ++num_moves;
  }
  return num_moves;
}

void gather_alone(const RowsView& rows, const JoinedView& clusters, int64_t most,
                  Array<int32_t> bins) {
  Tally tally;
  for (int64_t row = 0; row + 1 < rows.indptr.size; ++row) {
    const int64_t vertex = rows.first + row, own = clusters.own[vertex];
    if (clusters.label[vertex] != vertex || clusters.size[vertex] != own) continue;
    add_row(rows, row, clusters.label, tally);
    // The last bin is of vertices without edges.
    int64_t favourite = bins.size - 1, heaviest = 0;
    tally.drain([&](int32_t label, int64_t total) {
      if (total < heaviest || (total == heaviest && label >= favourite)) return;
      favourite = label;
      heaviest = total;
    });
    const int32_t home = bins[favourite];
    if (home == kNone || clusters.size[home] + own > most) {
      bins[favourite] = static_cast<int32_t>(vertex);
      continue;
    }
    clusters.label[vertex] = home;
    clusters.size[home] += own;
    clusters.size[vertex] -= own;
  }
}

int64_t change_parts(const RowsView& rows, const PartsView& parts, const WeightsView& sizes,
                     int64_t price) {
  int64_t num_moves = 0;
  for (int64_t row = 0; row + 1 < rows.indptr.size; ++row) {
    const int64_t vertex = rows.first + row;
    each_neighbor(rows, row, parts.part,
                  [&](int32_t part, int64_t weight) { parts.tally[part] += weight; });
    const Own own{sizes.vertices.size > 0 ? sizes.vertices[vertex] : 1, sizes.ends[vertex]};
    const int64_t home = parts.part[vertex];
    const int64_t goal = goal_of(rows, row, parts, home, own, price);
    for (int64_t k = rows.indptr[row]; k < rows.indptr[row + 1]; ++k) {
      parts.tally[parts.part[rows.neighbor[k]]] = 0;
    }
    if (goal == home) continue;
    parts.part[vertex] = static_cast<int32_t>(goal);
    for (int64_t measure = 0; measure < 2; ++measure) {
      parts.load[measure][home] -= own[static_cast<std::size_t>(measure)];
      parts.load[measure][goal] += own[static_cast<std::size_t>(measure)];
    }
    ++num_moves;
  }
  return num_moves;
}

}  // namespace distgnn
