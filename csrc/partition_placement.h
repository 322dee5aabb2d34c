// The placement that refinement changes unit by unit, its limits and work arrays; the arrays are
// those of Placement, Limits and Scratch in partition/refine/, where they are described.
#pragma once

#include "partition_array.h"

namespace distgnn {

struct Placement {
  std::int64_t num_vertices = 0;
  std::int64_t price = 0;
  In<std::int64_t> start;
  In<std::int32_t> neighbor;
  In<std::int32_t> mate;
  In<std::int32_t> weight;
  Array<std::int32_t> part;
  In<std::int64_t> first;
  Array<std::int32_t> used;
  Array<std::int32_t> slot_part;
  Array<std::int32_t> slot_count;
  Sets held;
  Sets single;
  Array<std::int64_t> load;
  Array<std::int64_t> clones;
  Array<std::int64_t> roots;
  In<std::int32_t> training;
  Array<std::int64_t> trained;
  Array<std::int64_t> totals;
  Array<std::uint8_t> is_due;

  std::int64_t num_nodes() const { return used.size; }
  std::int64_t num_parts() const { return load.size; }
  // Rows that travel, and clones of all parts.
  std::int64_t& rows() const { return totals[0]; }
  std::int64_t& all_clones() const { return totals[1]; }
};

struct Limits {
  std::int64_t load = 0;
  double clones = 0.0;
  std::int64_t roots = 0;
  std::int64_t trained = 0;
};

struct Scratch {
  Array<std::int64_t> entry;
  Array<std::int64_t> begin;
  Array<std::int64_t> end;
  Array<std::int32_t> target;
  Array<std::int64_t> order;
  Array<std::int64_t> goals;
  Array<std::uint64_t> others;
  Array<std::uint64_t> shared;
  Array<std::uint64_t> hopeful;
  Sets misses;
  Array<std::int64_t> pending;
  Array<std::int64_t> tally;
  In<double> root_step;
};

constexpr std::uint8_t kDueSlots = 1, kDueRoot = 2;
constexpr std::int64_t kNowhere = -1;
constexpr std::int64_t kImpossible = std::int64_t{1} << 60;

inline std::int64_t weight_of(const Placement& p, std::int64_t entry) {
  return p.weight[p.weight.size > 1 ? entry : 0];
}

// The other node of the same vertex; -1 where nodes are vertices.
inline std::int64_t twin(const Placement& p, std::int64_t node) {
  if (p.price == 2) return -1;
  return node < p.num_vertices ? node + p.num_vertices : node - p.num_vertices;
}

inline bool is_at_twin(const Placement& p, std::int64_t node, std::int64_t part) {
  const std::int64_t other = twin(p, node);
  return other >= 0 && p.held.has(other, part);
}

// Clones of the fullest part over the mean.
inline double crowding(const Placement& p) {
  return static_cast<double>(most_of(p.clones) * p.clones.size) /
         static_cast<double>(p.all_clones());
}

// How unevenly a move may leave the clones: within the limit, or no worse than they are.
inline double most_crowding(const Placement& p, const Limits& limits) {
  return std::max(crowding(p), limits.clones);
}

inline bool is_crowded(const Placement& p, const Limits& limits, std::int64_t part) {
  return static_cast<double>(p.clones[part] * p.num_parts()) >
         limits.clones * static_cast<double>(p.all_clones());
}

// The slot of a node in a part, or -1. The root's is found even while it is empty.
inline std::int64_t find_slot(const Placement& p, std::int64_t node, std::int64_t part) {
  const std::int64_t begin = p.first[node];
  for (std::int64_t slot = begin; slot < begin + p.used[node]; ++slot) {
    if (p.slot_part[slot] == part) return slot;
  }
  return -1;
}

void move_unit(const Placement& p, std::int64_t node, std::int64_t entry, std::int64_t part);
void move_root(const Placement& p, std::int64_t vertex, std::int64_t part);
// Counts the units of each slot of a range of nodes; all counts are 0 before. What nodes write is
// asked of those that read: their ranges come first.
void fill_placement(std::int64_t first, std::int64_t last, const Placement& p,
                    In<std::int32_t> root_part);

// Sorts the node's entries by part; those at the root's part are left out.
void list_by_part(const Placement& p, const Scratch& s, std::int64_t node);
// Finds new parts for all units of a paid slot; returns the change of the paid slots, at most, or
// kImpossible. More than `slack` added slots are of no interest.
std::int64_t plan_slot(const Placement& p, const Scratch& s, const Limits& limits,
                       std::int64_t node, std::int64_t part, std::int64_t slack);
double added_spread(const Placement& p, const Scratch& s, std::int64_t node, std::int64_t part);

// One try to empty every paid slot of the nodes that are due; returns the moves kept.
std::int64_t empty_slots(const Placement& p, const Scratch& s, const Limits& limits);
// One try of every small slot of the nodes in their order, also where as many rows travel.
void wander(const Placement& p, const Scratch& s, const Limits& limits, In<std::int64_t> order);
// One try to move every root with the edges beside it; returns the vertices moved.
std::int64_t move_vertices(const Placement& p, const Scratch& s, const Limits& limits,
                           std::int64_t price, std::int64_t most_rows);

// The steps of draining, in partition/refine/drain.py.
void drain_for_free(const Placement& p, const Limits& limits);
bool drain_by_slots(const Placement& p, const Scratch& s, const Limits& limits,
                    std::int64_t least, std::int64_t most_rows);
bool begin_elsewhere(const Placement& p, const Limits& limits, std::int64_t most_rows);
void empty_crowded(const Placement& p, const Scratch& s, const Limits& limits, std::int64_t slack,
                   std::int64_t most_rows);

}  // namespace distgnn
