// Algorithm: local search; all units of one paid slot move to parts that hold their ends already.
// Formula: kept if fewer rows travel, or as many and the sum of sqrt(units of a slot) falls;
//   wandering keeps any move after which as many rows travel.
// Source: Fiduccia and Mattheyses, DAC 1982 (moves and gains); Selman, Levesque and Mitchell,
//   AAAI 1992 (sideways moves).
#include <cmath>

#include "partition_placement.h"

namespace distgnn {
namespace {

using std::int64_t;

// Potentials closer than this are equal but for rounding.
constexpr double kStep = 1e-6;
// Units of a slot beyond which moving them was seldom free, and takes the most time.
constexpr int64_t kMostUnits = 16;
constexpr std::uint8_t kDue = kDueSlots | kDueRoot;

// Fetches what the nodes behind one in an order will be asked for; what leads there comes first.
void fetch_ahead(const Placement& p, In<int64_t> order, int64_t at) {
  constexpr int64_t kNear = 2, kFar = 8, kLine = 16;
  if (at + kFar < order.size) {
    const int64_t node = order[at + kFar];
    __builtin_prefetch(&p.used[node]);
    __builtin_prefetch(&p.first[node]);
    __builtin_prefetch(&p.start[node]);
  }
  if (at + kNear < order.size) {
    const int64_t node = order[at + kNear];
    __builtin_prefetch(&p.slot_part[p.first[node]]);
    __builtin_prefetch(&p.slot_count[p.first[node]]);
    for (int64_t k = p.start[node]; k < p.start[node + 1]; k += kLine) __builtin_prefetch(&p.part[k]);
  }
}

// Orders the parts of the node's paid slots, those with few units first; returns how many.
int64_t order_slots(const Placement& p, const Scratch& s, int64_t node) {
  const int64_t begin = p.first[node], end = begin + p.used[node];
  for (int64_t slot = begin + 1; slot < end; ++slot) {
    const int64_t part = p.slot_part[slot];
    s.tally[part] = p.slot_count[slot];
    int64_t k = slot - begin - 1;
    while (k > 0 && s.tally[part] < s.tally[s.order[k - 1]]) {
      s.order[k] = s.order[k - 1];
      --k;
    }
    s.order[k] = part;
  }
  for (int64_t slot = begin + 1; slot < end; ++slot) s.tally[p.slot_part[slot]] = 0;
  return end - begin - 1;
}

// The change of potential at the other end of one unit, which leaves a slot for another.
double added_at(const Placement& p, const Scratch& s, int64_t node, int64_t part, int64_t goal) {
  const int64_t begin = p.first[node], home = p.slot_part[begin];
  int64_t at_part = 0, at_goal = 0;
  for (int64_t slot = begin + 1; slot < begin + p.used[node]; ++slot) {
    if (p.slot_part[slot] == goal) {
      at_goal = p.slot_count[slot];
    } else if (p.slot_part[slot] == part) {
      at_part = p.slot_count[slot];
    }
  }
  const double added = goal != home ? s.root_step[at_goal] : 0.0;
  return added - (part != home ? s.root_step[at_part - 1] : 0.0);
}

// Moves the units of a part that are in hand as planned; undoes it if that does not pay.
bool try_plan(const Placement& p, const Scratch& s, const Limits& limits, int64_t node,
              int64_t part) {
  const int64_t rows = p.rows();
  const double most = most_crowding(p, limits);
  for (int64_t i = s.begin[part]; i < s.end[part]; ++i) move_unit(p, node, s.entry[i], s.target[i]);
  if (p.rows() <= rows && crowding(p) <= most) return true;
  for (int64_t i = s.begin[part]; i < s.end[part]; ++i) move_unit(p, node, s.entry[i], part);
  return false;
}

// A node came to a part: units may come from elsewhere whose other end is there already.
void make_visitors_due(const Placement& p, int64_t node, int64_t part) {
  for (int64_t k = p.start[node]; k < p.start[node + 1]; ++k) {
    if (p.part[k] != part && p.held.has(p.neighbor[k], part)) p.is_due[p.neighbor[k]] |= kDueSlots;
  }
}

// A node has one unit left in a part: it may leave from its other end.
void make_last_due(const Placement& p, int64_t node, int64_t part) {
  for (int64_t k = p.start[node]; k < p.start[node + 1]; ++k) {
    if (p.part[k] == part) {
      p.is_due[p.neighbor[k]] |= kDueSlots;
      return;
    }
  }
}

// Notes to whom the move of a slot's units may have opened a way.
void make_due(const Placement& p, const Scratch& s, int64_t node, int64_t part) {
  p.is_due[node] = kDue;
  int64_t gained = kNowhere;
  for (int64_t i = s.begin[part]; i < s.end[part]; ++i) {
    const int64_t other = p.neighbor[s.entry[i]], goal = s.target[i];
    p.is_due[other] = kDue;
    if ((s.others[goal >> 6] >> (goal & 63) & 1) == 0) gained = goal;
    if (p.single.has(other, goal)) make_visitors_due(p, other, goal);
    if (p.single.has(other, part)) make_last_due(p, other, part);
  }
  if (gained != kNowhere) make_visitors_due(p, node, gained);
}

// Tries the parts that hold paid slots of the node now, each with the units it has now.
int64_t empty_slots_of(const Placement& p, const Scratch& s, const Limits& limits, int64_t node) {
  int64_t num_moves = 0;
  const int64_t num_slots = order_slots(p, s, node);
  list_by_part(p, s, node);
  for (int64_t i = 0; i < num_slots; ++i) {
    const int64_t part = s.order[i];
    const int64_t change = plan_slot(p, s, limits, node, part, 0);
    if (change == 0 && added_spread(p, s, node, part) >= -kStep) continue;
    if (change <= 0 && try_plan(p, s, limits, node, part)) {
      ++num_moves;
      make_due(p, s, node, part);
      if (i + 1 < num_slots) list_by_part(p, s, node);
    }
  }
  return num_moves;
}

}  // namespace

double added_spread(const Placement& p, const Scratch& s, int64_t node, int64_t part) {
  double added = -std::sqrt(static_cast<double>(s.end[part] - s.begin[part]));
  for (int64_t i = s.begin[part]; i < s.end[part]; ++i) {
    const int64_t other = p.neighbor[s.entry[i]], goal = s.target[i];
    s.tally[goal] += 1;
    if (other != node) added += added_at(p, s, other, part, goal);
  }
  for (int64_t i = s.begin[part]; i < s.end[part]; ++i) {
    const int64_t goal = s.target[i], slot = find_slot(p, node, goal);
    if (slot != p.first[node] && s.tally[goal] > 0) {
      const int64_t count = slot != kNowhere ? p.slot_count[slot] : 0;
      added += std::sqrt(static_cast<double>(count + s.tally[goal])) -
               std::sqrt(static_cast<double>(count));
    }
    s.tally[goal] = 0;
  }
  return added;
}

int64_t empty_slots(const Placement& p, const Scratch& s, const Limits& limits) {
  int64_t num_moves = 0;
  for (int64_t vertex = 0; vertex < p.num_vertices; ++vertex) {
    for (int64_t node = vertex; node < p.num_nodes(); node += p.num_vertices) {
      if (p.used[node] > 1 && (p.is_due[node] & kDueSlots) != 0) {
        p.is_due[node] &= kDueRoot;
        num_moves += empty_slots_of(p, s, limits, node);
      }
    }
  }
  return num_moves;
}

void wander(const Placement& p, const Scratch& s, const Limits& limits, In<int64_t> order) {
  for (int64_t at = 0; at < order.size; ++at) {
    fetch_ahead(p, order, at);
    const int64_t node = order[at];
    const int64_t num_slots = order_slots(p, s, node);
    bool is_listed = false;
    for (int64_t i = 0; i < num_slots; ++i) {
      const int64_t part = s.order[i];
      if (p.slot_count[find_slot(p, node, part)] > kMostUnits) continue;
      if (!is_listed) {
        list_by_part(p, s, node);
        is_listed = true;
      }
      const int64_t change = plan_slot(p, s, limits, node, part, 0);
      if (change <= 0 && try_plan(p, s, limits, node, part)) {
        p.is_due[node] = kDue;
        for (int64_t k = s.begin[part]; k < s.end[part]; ++k) p.is_due[p.neighbor[s.entry[k]]] = kDue;
        is_listed = false;
      }
    }
  }
}

}  // namespace distgnn
