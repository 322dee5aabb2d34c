// Algorithm: a root moves to the part of most of its neighbours, with the edges beside it whose
//   other ends are there.
// Formula: kept if fewer rows are added than the price, and the clones stay as even.
// Source: Fiduccia and Mattheyses, DAC 1982 (moves and gains).
#include "partition_placement.h"

namespace distgnn {
namespace {

using std::int64_t;

constexpr std::uint8_t kDue = kDueSlots | kDueRoot;
// Units at the root's part over those at another beyond which moving a root seldom paid.
constexpr int64_t kMostAtHome = 8;

// Whether the root's part holds few enough units to let a move to another pay.
bool is_torn(const Placement& p, int64_t vertex) {
  int64_t at_home = 0, away = 0;
  for (int64_t node = vertex; node < p.num_nodes(); node += p.num_vertices) {
    const int64_t begin = p.first[node];
    at_home += p.slot_count[begin];
    for (int64_t slot = begin + 1; slot < begin + p.used[node]; ++slot) {
      away = std::max<int64_t>(away, p.slot_count[slot]);
    }
  }
  return away > 0 && at_home <= kMostAtHome * away;
}

// Whether something changed at the vertex since its root was tried; it is tried now.
bool is_due(const Placement& p, int64_t vertex) {
  bool found = false;
  for (int64_t node = vertex; node < p.num_nodes(); node += p.num_vertices) {
    found |= (p.is_due[node] & kDueRoot) != 0;
    p.is_due[node] &= kDueSlots;
  }
  return found;
}

bool is_own(const Placement& p, int64_t node, int64_t other) {
  return other == node || other == twin(p, node);
}

// The part, with room for them, of most of the neighbours at the root's part; and of most edges.
int64_t goal_of(const Placement& p, const Scratch& s, const Limits& limits, int64_t vertex) {
  const int64_t home = p.slot_part[p.first[vertex]];
  // Edges from the vertex to itself go wherever its root goes.
  int64_t of_loops = 0;
  for (int64_t node = vertex; node < p.num_nodes(); node += p.num_vertices) {
    const int64_t own = p.first[node];
    for (int64_t slot = own; slot < own + p.used[node]; ++slot) {
      s.tally[p.slot_part[slot]] += p.slot_count[slot];
    }
    for (int64_t k = p.start[node]; k < p.start[node + 1]; ++k) {
      if (p.part[k] != home) continue;
      const int64_t other = p.neighbor[k];
      const bool is_loop = is_own(p, node, other);
      // The other node has an entry for it, too.
      if (is_loop && node == vertex) of_loops += weight_of(p, k);
      const int64_t begin = p.first[other];
      for (int64_t slot = begin; slot < begin + p.used[other]; ++slot) {
        s.tally[p.slot_part[slot]] += 1;
        if (!is_loop) s.pending[p.slot_part[slot]] += weight_of(p, k);
      }
    }
  }
  int64_t best = kNowhere, most = 0;
  const int64_t training = p.training.size > 0 ? p.training[vertex] : 0;
  for (int64_t part = 0; part < s.tally.size; ++part) {
    if (part != home && s.tally[part] > most &&
        p.load[part] + s.pending[part] + of_loops <= limits.load && p.roots[part] < limits.roots &&
        (training == 0 || p.trained[part] + training <= limits.trained)) {
      best = part;
      most = s.tally[part];
    }
  }
  s.tally.fill(0);
  s.pending.fill(0);
  return best;
}

// Rows added if the root moves with the edges at home whose other ends are at the goal.
int64_t change_of(const Placement& p, int64_t vertex, int64_t goal) {
  const int64_t home = p.slot_part[p.first[vertex]];
  int64_t change = 0;
  for (int64_t node = vertex; node < p.num_nodes(); node += p.num_vertices) {
    if (p.held.has(node, goal)) --change;
    bool is_staying = false;
    for (int64_t k = p.start[node]; k < p.start[node + 1]; ++k) {
      if (p.part[k] != home) continue;
      const int64_t other = p.neighbor[k];
      if (!is_own(p, node, other) && !p.held.has(other, goal)) {
        is_staying = true;
      } else if (other != node) {
        const int64_t slot = find_slot(p, other, home);
        if (slot > p.first[other] && p.slot_count[slot] == 1) --change;
      }
    }
    change += is_staying;
  }
  return change * p.price;
}

// Moves a vertex to a part; undoes it if the clones get uneven.
bool try_move(const Placement& p, const Scratch& s, const Limits& limits, int64_t vertex,
              int64_t goal) {
  const int64_t home = p.slot_part[p.first[vertex]];
  const double most = most_crowding(p, limits);
  move_root(p, vertex, goal);
  int64_t num_moved = 0;
  for (int64_t node = vertex; node < p.num_nodes(); node += p.num_vertices) {
    for (int64_t k = p.start[node]; k < p.start[node + 1]; ++k) {
      if (p.part[k] == home && p.held.has(p.neighbor[k], goal)) {
        s.entry[num_moved++] = k;
        move_unit(p, node, k, goal);
      }
    }
  }
  if (crowding(p) <= most) {
    for (int64_t node = vertex; node < p.num_nodes(); node += p.num_vertices) {
      p.is_due[node] = kDue;
      for (int64_t k = p.start[node]; k < p.start[node + 1]; ++k) p.is_due[p.neighbor[k]] = kDue;
    }
    return true;
  }
  for (int64_t i = 0; i < num_moved; ++i) {
    const int64_t k = s.entry[i];
    move_unit(p, k < p.start[vertex + 1] ? vertex : twin(p, vertex), k, home);
  }
  move_root(p, vertex, home);
  return false;
}

}  // namespace

int64_t move_vertices(const Placement& p, const Scratch& s, const Limits& limits, int64_t price,
                      int64_t most_rows) {
  // In windows of parts roots stay: the edges beside them are not all there.
  if (limits.roots <= 0) return 0;
  int64_t num_moves = 0;
  for (int64_t vertex = 0; vertex < p.num_vertices; ++vertex) {
    const int64_t home = p.slot_part[p.first[vertex]];
    const bool is_wanted = price > 0 ? p.load[home] > limits.load || is_crowded(p, limits, home)
                                     : is_due(p, vertex) && is_torn(p, vertex);
    if (!is_wanted) continue;
    const int64_t goal = goal_of(p, s, limits, vertex);
    if (goal == kNowhere) continue;
    const int64_t change = change_of(p, vertex, goal);
    if (change < price && p.rows() + std::max<int64_t>(change, 0) <= most_rows) {
      num_moves += try_move(p, s, limits, vertex, goal);
    }
  }
  return num_moves;
}

}  // namespace distgnn
