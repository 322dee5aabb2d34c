// Algorithm: each unit of a slot takes the first other part of its node that holds its other end
//   and has room; units without one go to one new part together, or beside the root.
// Formula: change = slots added at the node and at the ends - slots emptied there.
// Source: partition/refine/scratch.py describes the work arrays.
#include <tuple>
#include <utility>

#include "partition_placement.h"

namespace distgnn {
namespace {

using std::int64_t;
using std::uint64_t;

constexpr int64_t kGivenUp = -1;

// Slots that are emptied if all units of one leave it: the ends' and its own.
int64_t count_emptied(const Placement& p, const Scratch& s, int64_t node, int64_t part) {
  int64_t emptied = 1;
  for (int64_t i = s.begin[part]; i < s.end[part]; ++i) {
    const int64_t other = p.neighbor[s.entry[i]];
    if (other != node) emptied += static_cast<int64_t>(p.single.bit(other, part));
  }
  return emptied;
}

// Begins to count which new parts may pay: those that lack fewer open units than the slots that
// are emptied, and those that may be added. Returns the bits that are counted with.
int64_t hope(const Placement& p, const Scratch& s, const Limits& limits, int64_t node, int64_t part,
             int64_t emptied) {
  for (int64_t word = 0; word < s.hopeful.size; ++word) {
    uint64_t hopeful = 0;
    const int64_t end = std::min<int64_t>(kWordBits * (word + 1), s.order.size);
    for (int64_t candidate = kWordBits * word; candidate < end; ++candidate) {
      if (candidate != part && p.load[candidate] < limits.load) {
        hopeful |= uint64_t{1} << (candidate & 63);
      }
    }
    s.hopeful[word] = hopeful & ~p.held.row(node)[word];
  }
  int64_t num_bits = 0;
  while (int64_t{1} << num_bits < emptied) ++num_bits;
  for (int64_t bit = 0; bit < num_bits; ++bit) {
    const bool is_set = (((int64_t{1} << num_bits) - emptied) >> bit & 1) != 0;
    std::fill_n(s.misses.row(bit), s.misses.num_words, is_set ? ~uint64_t{0} : 0);
  }
  return num_bits;
}

// Counts an open unit whose other end is not in all hopeful parts; tells if one is left.
bool lacks(const Placement& p, const Scratch& s, int64_t other, int64_t num_bits) {
  bool is_left = false;
  for (int64_t word = 0; word < s.hopeful.size; ++word) {
    uint64_t lacking = s.hopeful[word] & ~p.held.row(other)[word];
    for (int64_t bit = 0; bit < num_bits && lacking != 0; ++bit) {
      uint64_t& misses = s.misses.row(bit)[word];
      const uint64_t carry = misses & lacking;
      misses ^= lacking;
      lacking = carry;
    }
    s.hopeful[word] &= ~lacking;
    is_left |= s.hopeful[word] != 0;
  }
  return is_left;
}

// Gives each unit the first goal that holds its other end too and has room for it. Returns the
// units without a goal, or kGivenUp, and their edges.
//
// Most time is spent here. It ends as soon as no new part can take enough of the units without a
// goal, or as the root's part has no room for all of them and no new part holds all their ends.
std::pair<int64_t, int64_t> find_goals(const Placement& p, const Scratch& s, const Limits& limits,
                                       int64_t node, int64_t part, int64_t num_goals,
                                       int64_t emptied, int64_t num_bits) {
  const int64_t room = limits.load - p.load[p.slot_part[p.first[node]]];
  const int64_t num_words = s.others.size;
  std::copy_n(s.hopeful.data, num_words, s.shared.data);
  int64_t num_open = 0, open_weight = 0;
  for (int64_t i = s.begin[part]; i < s.end[part]; ++i) {
    const int64_t k = s.entry[i];
    const int64_t other = p.neighbor[k], edges = weight_of(p, k);
    const uint64_t* const there = p.held.row(other);
    s.target[i] = kNowhere;
    uint64_t common = 0;
    for (int64_t word = 0; word < num_words; ++word) common |= s.others[word] & there[word];
    if (common != 0) {
      for (int64_t j = 0; j < num_goals; ++j) {
        const int64_t goal = s.goals[j];
        const bool is_there = (there[goal >> 6] >> (goal & 63) & 1) != 0;
        if (is_there && p.load[goal] + s.pending[goal] + edges <= limits.load) {
          s.pending[goal] += edges;
          s.target[i] = static_cast<std::int32_t>(goal);
          break;
        }
      }
    }
    if (s.target[i] != kNowhere) continue;
    ++num_open;
    open_weight += edges;
    uint64_t shared = 0;
    for (int64_t word = 0; word < num_words; ++word) {
      s.shared[word] &= there[word];
      shared |= s.shared[word];
    }
    if (open_weight > room && shared == 0) return {kGivenUp, 0};
    const bool is_hopeful = lacks(p, s, other, num_bits);
    if (num_open > emptied && !is_hopeful) return {kGivenUp, 0};
  }
  return {num_open, open_weight};
}

// Lists the node's other parts, those with few edges first.
int64_t order_goals(const Placement& p, const Scratch& s, int64_t node, int64_t part) {
  std::copy_n(p.held.row(node), s.others.size, s.others.data);
  s.others[part >> 6] &= ~(uint64_t{1} << (part & 63));
  int64_t num_goals = 0;
  const int64_t begin = p.first[node];
  for (int64_t slot = begin; slot < begin + p.used[node]; ++slot) {
    const int64_t goal = p.slot_part[slot];
    if (goal == part) continue;
    int64_t k = num_goals;
    while (k > 0 && std::pair(p.load[goal], goal) <
                        std::pair(p.load[s.goals[k - 1]], s.goals[k - 1])) {
      s.goals[k] = s.goals[k - 1];
      --k;
    }
    s.goals[k] = goal;
    ++num_goals;
  }
  return num_goals;
}

// The least loaded part that holds the ends of all open units, and the slots it saves.
std::pair<int64_t, int64_t> new_part(const Placement& p, const Scratch& s, const Limits& limits,
                                     int64_t num_open, int64_t open_weight) {
  int64_t best = kNowhere, best_load = limits.load - open_weight + 1;
  for (int64_t word = 0; word < s.shared.size; ++word) {
    const uint64_t open = s.shared[word];
    if (open == 0) continue;
    const int64_t end = std::min<int64_t>(kWordBits * (word + 1), p.num_parts());
    for (int64_t candidate = kWordBits * word; candidate < end; ++candidate) {
      if (p.load[candidate] < best_load && (open >> (candidate & 63) & 1) != 0) {
        best = candidate;
        best_load = p.load[candidate];
      }
    }
  }
  return {best, best != kNowhere ? num_open - 1 : 0};
}

// A part without the node that holds most ends of open units, and the slots it saves.
std::pair<int64_t, int64_t> fullest_part(const Placement& p, const Scratch& s, const Limits& limits,
                                         int64_t node, int64_t part, int64_t open_weight) {
  for (int64_t i = s.begin[part]; i < s.end[part]; ++i) {
    if (s.target[i] != kNowhere) continue;
    const int64_t other = p.neighbor[s.entry[i]], begin = p.first[other];
    for (int64_t slot = begin; slot < begin + p.used[other]; ++slot) s.tally[p.slot_part[slot]] += 1;
  }
  int64_t best = kNowhere, gain = 0;
  for (int64_t candidate = 0; candidate < s.tally.size; ++candidate) {
    if (s.tally[candidate] > gain + 1 && !p.held.has(node, candidate) &&
        p.load[candidate] + open_weight <= limits.load) {
      best = candidate;
      gain = s.tally[candidate] - 1;
    }
  }
  s.tally.fill(0);
  return {best, gain};
}

// Places the units without a common part: together in one new part, or beside the root.
int64_t close(const Placement& p, const Scratch& s, const Limits& limits, int64_t node,
              int64_t part, int64_t best, int64_t change) {
  const int64_t fallback = p.slot_part[p.first[node]];
  int64_t left_over = 0;
  for (int64_t i = s.begin[part]; i < s.end[part]; ++i) {
    if (s.target[i] != kNowhere) continue;
    const bool is_there = best != kNowhere && p.held.has(p.neighbor[s.entry[i]], best);
    s.target[i] = static_cast<std::int32_t>(is_there ? best : fallback);
    left_over += is_there ? 0 : weight_of(p, s.entry[i]);
  }
  if (left_over == 0) return change;
  const bool has_room = p.load[fallback] + s.pending[fallback] + left_over <= limits.load;
  return has_room ? change : kImpossible;
}

}  // namespace

void list_by_part(const Placement& p, const Scratch& s, int64_t node) {
  int64_t position = 0;
  const int64_t begin = p.first[node];
  for (int64_t slot = begin + 1; slot < begin + p.used[node]; ++slot) {
    const int64_t part = p.slot_part[slot];
    s.begin[part] = s.end[part] = position;
    position += p.slot_count[slot];
  }
  const std::int32_t home = p.slot_part[begin];
  for (int64_t k = p.start[node]; k < p.start[node + 1]; ++k) {
    const std::int32_t part = p.part[k];
    if (part == home) continue;
    s.entry[s.end[part]++] = k;
    // Asked for where the slot is planned.
    __builtin_prefetch(p.held.row(p.neighbor[k]));
    __builtin_prefetch(p.single.row(p.neighbor[k]));
  }
}

int64_t plan_slot(const Placement& p, const Scratch& s, const Limits& limits, int64_t node,
                  int64_t part, int64_t slack) {
  const int64_t num_goals = order_goals(p, s, node, part);
  const int64_t emptied = count_emptied(p, s, node, part);
  const int64_t num_bits = hope(p, s, limits, node, part, emptied + slack);
  const auto [num_open, open_weight] =
      find_goals(p, s, limits, node, part, num_goals, emptied + slack, num_bits);
  int64_t change = num_open - emptied;
  if (num_open == kGivenUp) {
    change = kImpossible;
  } else if (num_open > 0) {
    auto [best, gain] = new_part(p, s, limits, num_open, open_weight);
    if (gain == 0 && num_open > 1 && emptied + slack > 1) {
      std::tie(best, gain) = fullest_part(p, s, limits, node, part, open_weight);
    }
    change = close(p, s, limits, node, part, best, change - gain);
  }
  for (int64_t i = 0; i < num_goals; ++i) s.pending[s.goals[i]] = 0;
  return change;
}

}  // namespace distgnn
