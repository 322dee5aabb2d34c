// Algorithm: greedy moves out of overfull parts, those that add the fewest rows first.
// Formula: a move keeps clones of the fullest part over the mean within the limit, or no worse.
// Source: partition/refine/drain.py, which calls the steps in turn.
#include <cstdlib>

#include "partition_placement.h"

namespace distgnn {
namespace {

using std::int64_t;

constexpr std::uint8_t kDue = kDueSlots | kDueRoot;
// Units of one vertex that begin in a part where none of their ends lives.
constexpr int64_t kMostBegun = 8;

// Moves a unit to a part, unless that leaves the clones less even than `most`. Returns the limit
// after it; it is counted again only where a clone came or went.
double move_evenly(const Placement& p, const Limits& limits, int64_t node, int64_t entry,
                   int64_t part, double most) {
  const int64_t home = p.part[entry], other = p.neighbor[entry];
  const int64_t num_clones = p.all_clones(), at_goal = p.clones[part];
  move_unit(p, node, entry, part);
  if (p.all_clones() != num_clones || p.clones[part] != at_goal) {
    if (crowding(p) > most) {
      move_unit(p, node, entry, home);
      return most;
    }
    most = most_crowding(p, limits);
  }
  p.is_due[node] = p.is_due[other] = kDue;
  return most;
}

// Moves a slot's units as planned; undoes it if other parts get too many clones.
void try_to_leave(const Placement& p, const Scratch& s, const Limits& limits, int64_t node,
                  int64_t part) {
  const double most = most_crowding(p, limits);
  const int64_t clones = p.clones[part];
  for (int64_t i = s.begin[part]; i < s.end[part]; ++i) move_unit(p, node, s.entry[i], s.target[i]);
  if (p.clones[part] < clones && crowding(p) <= most) {
    p.is_due[node] = kDue;
    for (int64_t i = s.begin[part]; i < s.end[part]; ++i) p.is_due[p.neighbor[s.entry[i]]] = kDue;
    return;
  }
  for (int64_t i = s.begin[part]; i < s.end[part]; ++i) move_unit(p, node, s.entry[i], part);
}

// Moves a few of a node's units from an overfull part to another, while there is room.
bool move_units(const Placement& p, const Limits& limits, int64_t node, int64_t home,
                int64_t part) {
  double most = most_crowding(p, limits);
  int64_t num_moved = 0;
  for (int64_t k = p.start[node]; k < p.start[node + 1]; ++k) {
    if (p.part[k] == home && num_moved < kMostBegun && p.load[home] > limits.load &&
        p.load[part] + weight_of(p, k) <= limits.load) {
      most = move_evenly(p, limits, node, k, part, most);
      num_moved += p.part[k] == part;
    }
  }
  return num_moved > 0;
}

// The overfull part with at least so many units of the node, the fullest.
int64_t fullest(const Placement& p, const Limits& limits, int64_t node, int64_t least) {
  int64_t best = kNowhere, best_load = limits.load;
  const int64_t begin = p.first[node];
  for (int64_t slot = begin; slot < begin + p.used[node]; ++slot) {
    const int64_t part = p.slot_part[slot];
    if (p.load[part] > best_load && p.slot_count[slot] >= std::max<int64_t>(least, 1)) {
      best = part;
      best_load = p.load[part];
    }
  }
  return best;
}

// How many edges the part with the most room may still take in.
int64_t most_room(const Placement& p, const Limits& limits) {
  return limits.load - *std::min_element(p.load.begin(), p.load.end());
}

// A new part for the node that holds most of its neighbours at home, if there are enough.
int64_t roomy_part(const Placement& p, const Scratch& s, const Limits& limits, int64_t node,
                   int64_t home, int64_t least) {
  for (int64_t k = p.start[node]; k < p.start[node + 1]; ++k) {
    if (p.part[k] != home) continue;
    const int64_t other = p.neighbor[k], begin = p.first[other];
    for (int64_t slot = begin; slot < begin + p.used[other]; ++slot) {
      s.tally[p.slot_part[slot]] += weight_of(p, k);
    }
  }
  int64_t best = kNowhere, best_gain = std::max<int64_t>(least, 1) - 1;
  const double most_clones =
      limits.clones * static_cast<double>(p.all_clones()) / static_cast<double>(p.num_parts());
  for (int64_t part = 0; part < p.num_parts(); ++part) {
    const int64_t gain = std::min(s.tally[part], limits.load - p.load[part]);
    if (gain > best_gain && !p.held.has(node, part) &&
        static_cast<double>(p.clones[part] + 1) <= most_clones) {
      best = part;
      best_gain = gain;
    }
  }
  s.tally.fill(0);
  return best;
}

// Moves the node's units from one part to another that holds their other ends.
void move_to(const Placement& p, const Limits& limits, int64_t node, int64_t home, int64_t part) {
  double most = most_crowding(p, limits);
  for (int64_t k = p.start[node]; k < p.start[node + 1]; ++k) {
    if (p.part[k] == home && p.load[home] > limits.load &&
        p.load[part] + weight_of(p, k) <= limits.load && p.held.has(p.neighbor[k], part)) {
      most = move_evenly(p, limits, node, k, part, most);
    }
  }
}

}  // namespace

void drain_for_free(const Placement& p, const Limits& limits) {
  double most = most_crowding(p, limits);
  for (int64_t node = 0; node < p.num_nodes(); ++node) {
    for (int64_t k = p.start[node]; k < p.start[node + 1]; ++k) {
      const int64_t home = p.part[k], other = p.neighbor[k];
      // Every unit once, at its first entry.
      if (p.mate[k] < k || p.load[home] <= limits.load) continue;
      int64_t best = kNowhere, best_load = limits.load - weight_of(p, k);
      const int64_t begin = p.first[node];
      for (int64_t slot = begin; slot < begin + p.used[node]; ++slot) {
        const int64_t part = p.slot_part[slot];
        if (p.held.has(other, part) && part != home && p.load[part] <= best_load) {
          best = part;
          best_load = p.load[part];
        }
      }
      if (best != kNowhere) most = move_evenly(p, limits, node, k, best, most);
    }
  }
}

bool drain_by_slots(const Placement& p, const Scratch& s, const Limits& limits, int64_t least,
                    int64_t most_rows) {
  bool has_moved = false;
  const int64_t fewest = std::max<int64_t>(least, 1);
  if (most_room(p, limits) < fewest) return false;
  for (int64_t vertex = 0; vertex < p.num_vertices; ++vertex) {
    for (int64_t node = vertex; node < p.num_nodes(); node += p.num_vertices) {
      const int64_t home = fullest(p, limits, node, least);
      if (home == kNowhere || p.rows() + p.price > most_rows) continue;
      const int64_t part = roomy_part(p, s, limits, node, home, least);
      if (part == kNowhere) continue;
      move_to(p, limits, node, home, part);
      has_moved = true;
      // Where no part has room for so many, the nodes that follow cost much time for nothing.
      if (most_room(p, limits) < fewest) return true;
    }
  }
  return has_moved;
}

bool begin_elsewhere(const Placement& p, const Limits& limits, int64_t most_rows) {
  Made<int64_t> nearest(p.num_parts(), p.num_nodes() + kMostBegun);
  Made<int64_t> node_of(p.num_parts(), kNowhere);
  for (int64_t node = 0; node < p.num_nodes(); ++node) {
    const int64_t begin = p.first[node];
    for (int64_t slot = begin; slot < begin + p.used[node]; ++slot) {
      const int64_t part = p.slot_part[slot], count = p.slot_count[slot];
      const int64_t distance = std::abs(count - kMostBegun);
      if (p.load[part] > limits.load && count > 0 && distance < nearest[part]) {
        nearest[part] = distance;
        node_of[part] = node;
      }
    }
  }
  bool has_moved = false;
  for (int64_t part = 0; part < p.num_parts(); ++part) {
    const int64_t rows = p.rows() + (kMostBegun + 1) * p.price;
    if (node_of[part] != kNowhere && rows <= most_rows) {
      has_moved |= move_units(p, limits, node_of[part], part, least_at(p.load));
    }
  }
  return has_moved;
}

void empty_crowded(const Placement& p, const Scratch& s, const Limits& limits, int64_t slack,
                   int64_t most_rows) {
  for (int64_t node = 0; node < p.num_nodes(); ++node) {
    const int64_t begin = p.first[node];
    for (int64_t slot = begin + p.used[node] - 1; slot > begin; --slot) {
      const int64_t part = p.slot_part[slot];
      if (!is_crowded(p, limits, part)) continue;
      list_by_part(p, s, node);
      const int64_t change = plan_slot(p, s, limits, node, part, slack);
      if (change > slack) continue;
      if (change <= 0 || p.rows() + change * p.price <= most_rows) {
        try_to_leave(p, s, limits, node, part);
      }
    }
  }
}

}  // namespace distgnn
