// Algorithm: a unit leaves its part before it enters another; slots, loads and clones are counted
//   along. A slot that is emptied is replaced by the node's last one.
// Formula: rows = price * paid slots; clones of a part = vertices with a slot or the root there.
// Source: partition/refine/moves.py and partition/refine/placement.py describe the arrays.
#include "partition_placement.h"

namespace distgnn {
namespace {

using std::int64_t;

void note_single(const Placement& p, int64_t node, int64_t slot) {
  if (p.slot_count[slot] == 1) {
    p.single.put(node, p.slot_part[slot]);
  } else if (p.slot_count[slot] == 2) {
    p.single.drop(node, p.slot_part[slot]);
  }
}

// Takes a paid slot off the list; the last one moves there.
void drop_slot(const Placement& p, int64_t node, int64_t slot) {
  p.held.drop(node, p.slot_part[slot]);
  p.single.drop(node, p.slot_part[slot]);
  p.used[node] -= 1;
  const int64_t last = p.first[node] + p.used[node];
  p.slot_part[slot] = p.slot_part[last];
  p.slot_count[slot] = p.slot_count[last];
}

void enter(const Placement& p, int64_t node, int64_t part) {
  const int64_t begin = p.first[node];
  int64_t slot = 0;
  if (p.held.has(node, part)) {
    slot = find_slot(p, node, part);
  } else {
    slot = begin + p.used[node];
    p.used[node] += 1;
    p.slot_part[slot] = static_cast<std::int32_t>(part);
    p.slot_count[slot] = 0;
    p.held.put(node, part);
    p.rows() += p.price;
    if (!is_at_twin(p, node, part)) {
      p.clones[part] += 1;
      p.all_clones() += 1;
    }
  }
  p.slot_count[slot] += 1;
  if (slot > begin) note_single(p, node, slot);
}

void leave(const Placement& p, int64_t node, int64_t part) {
  const int64_t slot = find_slot(p, node, part);
  p.slot_count[slot] -= 1;
  if (slot == p.first[node]) return;
  if (p.slot_count[slot] > 0) {
    note_single(p, node, slot);
    return;
  }
  drop_slot(p, node, slot);
  p.rows() -= p.price;
  if (!is_at_twin(p, node, part)) {
    p.clones[part] -= 1;
    p.all_clones() -= 1;
  }
}

// Makes the node's slot in a part, which may be new, the free one.
void move_free_slot(const Placement& p, int64_t node, int64_t part) {
  const int64_t begin = p.first[node];
  const std::int32_t home = p.slot_part[begin], count = p.slot_count[begin];
  p.slot_count[begin] = 0;
  if (p.held.has(node, part)) {
    const int64_t slot = find_slot(p, node, part);
    p.slot_count[begin] = p.slot_count[slot];
    p.rows() -= p.price;
    drop_slot(p, node, slot);
  }
  p.slot_part[begin] = static_cast<std::int32_t>(part);
  p.held.put(node, part);
  p.held.drop(node, home);
  if (count == 0) return;
  const int64_t last = begin + p.used[node];
  p.used[node] += 1;
  p.slot_part[last] = home;
  p.slot_count[last] = count;
  p.held.put(node, home);
  note_single(p, node, last);
  p.rows() += p.price;
}

}  // namespace

void move_unit(const Placement& p, int64_t node, int64_t entry, int64_t part) {
  const int64_t home = p.part[entry], other = p.neighbor[entry], mate = p.mate[entry];
  // Leave before entering: a node has no more room for slots than units.
  leave(p, node, home);
  if (mate != entry) {
    leave(p, other, home);
    enter(p, other, part);
  }
  enter(p, node, part);
  const int64_t weight = weight_of(p, entry);
  p.load[home] -= weight;
  p.load[part] += weight;
  p.part[entry] = static_cast<std::int32_t>(part);
  p.part[mate] = static_cast<std::int32_t>(part);
}

void move_root(const Placement& p, int64_t vertex, int64_t part) {
  const int64_t home = p.slot_part[p.first[vertex]];
  p.roots[home] -= 1;
  p.roots[part] += 1;
  if (p.training.size > 0) {
    p.trained[home] -= p.training[vertex];
    p.trained[part] += p.training[vertex];
  }
  bool is_leaving = true, is_new = true;
  for (int64_t node = vertex; node < p.num_nodes(); node += p.num_vertices) {
    is_leaving &= p.slot_count[p.first[node]] == 0;
    is_new &= !p.held.has(node, part);
    move_free_slot(p, node, part);
  }
  p.clones[home] -= is_leaving;
  p.clones[part] += is_new;
  p.all_clones() += int{is_new} - int{is_leaving};
}

void fill_placement(int64_t first, int64_t last, const Placement& p,
                    In<std::int32_t> root_part) {
  Made<std::int32_t> tally(p.num_parts(), 0);
  for (int64_t node = first; node < last; ++node) {
    const std::int32_t root = root_part[node % p.num_vertices];
    const int64_t begin = p.first[node];
    p.slot_part[begin] = root;
    p.held.put(node, root);
    for (int64_t k = p.start[node]; k < p.start[node + 1]; ++k) {
      const std::int32_t part = p.part[k];
      tally[part] += 1;
      if (!p.held.has(node, part)) {
        p.held.put(node, part);
        p.slot_part[begin + p.used[node]] = part;
        p.used[node] += 1;
      }
      if (k <= p.mate[k]) p.load[part] += weight_of(p, k);
    }
    for (int64_t slot = begin; slot < begin + p.used[node]; ++slot) {
      const std::int32_t part = p.slot_part[slot];
      p.slot_count[slot] = tally[part];
      tally[part] = 0;
      if (slot == begin) continue;
      p.rows() += p.price;
      if (p.slot_count[slot] == 1) p.single.put(node, part);
      // The reading nodes come first.
      if (node < p.num_vertices || !is_at_twin(p, node, part)) {
        p.clones[part] += 1;
        p.all_clones() += 1;
      }
    }
  }
}

}  // namespace distgnn
