// Algorithm: simulated annealing; a block moves to a random part unless that adds more clones than
//   a random number allows.
// Formula: clones of a cluster on a part = size * (1 - exp(-ends / (size * softness))).
// Source: Kirkpatrick, Gelatt and Vecchi, "Optimization by simulated annealing", Science 1983.
#include "partition_blocks.h"

#include <cmath>

#include "partition_growth.h"

namespace distgnn {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

void count_blocks(const Links& links, In<int32_t> label, Rows2<int64_t> ends,
                  Rows2<int64_t> edges) {
  for (int64_t vertex = 0; vertex < label.size; ++vertex) {
    const int32_t one = label[vertex];
    for (int64_t k = links.indptr[vertex]; k < links.indptr[vertex + 1]; ++k) {
      const int32_t other = label[links.indices[k]];
      ends[one][other] += 1;
      edges[one][other] += links.weight[k];
    }
  }
}

Made<int32_t> spread_blocks(const ArcView& arcs, In<int32_t> label, Rows2<const int32_t> part_of) {
  Made<int32_t> arc_part(arcs.head.size);
  for (int64_t vertex = 0; vertex < label.size; ++vertex) {
    for (int64_t k = arcs.start[vertex]; k < arcs.start[vertex + 1]; ++k) {
      arc_part[k] = part_of[label[vertex]][label[arcs.head[k]]];
    }
  }
  return arc_part;
}

void note_clusters(const ArcView& arcs, In<int32_t> label, int64_t step, Sets heads, Sets tails) {
  for (int64_t vertex = 0; vertex < label.size; ++vertex) {
    for (int64_t k = arcs.start[vertex]; k < arcs.start[vertex + 1]; ++k) {
      const int32_t head = arcs.head[k];
      if (vertex % step == 0) heads.put(vertex / step, label[head]);
      if (head % step == 0) tails.put(head / step, label[vertex]);
    }
  }
}

int64_t count_rows(In<int32_t> label, Sets heads, Sets tails, Rows2<const int32_t> part_of,
                   int64_t num_parts) {
  int64_t rows = 0;
  Made<bool> reads(num_parts), writes(num_parts);
  for (int64_t vertex = 0; vertex < label.size; ++vertex) {
    reads.view().fill(false);
    writes.view().fill(false);
    for (int64_t cluster = 0; cluster < part_of.size; ++cluster) {
      const int32_t part = part_of[label[vertex]][cluster];
      reads[part] |= heads.has(vertex, cluster);
      writes[part] |= tails.has(vertex, cluster);
    }
    int64_t most_roles = 0;
    for (int64_t part = 0; part < num_parts; ++part) {
      const int64_t roles = int64_t{reads[part]} + int64_t{writes[part]};
      rows += roles;
      most_roles = std::max(most_roles, roles);
    }
    rows -= most_roles;
  }
  return rows;
}

namespace {

// So many vertices of a cluster are expected to have a link, if the ends fall at random.
double present(double size, int64_t ends, double softness) {
  return ends > 0 ? size * (1.0 - std::exp(-static_cast<double>(ends) / (size * softness))) : 0.0;
}

int64_t below(uint64_t bits, int64_t bound) {
  return static_cast<int64_t>(((bits >> 32) * static_cast<uint64_t>(bound)) >> 32);
}

double sum_of(Array<double> values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum;
}

void count_state_clones(const BlocksView& blocks, const BlockState& state) {
  state.clones.fill(0.0);
  for (int64_t cluster = 0; cluster < blocks.size.size; ++cluster) {
    for (int64_t part = 0; part < state.load.size; ++part) {
      state.clones[part] += present(blocks.size[cluster], state.ends[cluster][part], 1.0);
    }
  }
  state.all_clones[0] = sum_of(state.clones);
}

// Moves a block to a part unless that is overfull then, or adds more clones than allowed.
void try_block(const BlocksView& blocks, const BlockState& state, int64_t block, int64_t goal,
               double most_load, double most_added, const Schedule& schedule) {
  const int64_t home = state.part[block], edges = blocks.edges[block];
  const int64_t load = state.load[goal] + edges;
  if (static_cast<double>(load) > most_load && load >= state.load[home]) return;
  double added = 0.0, left = 0.0, came = 0.0;
  for (int64_t side = 0; side < 2; ++side) {
    const int64_t ends = blocks.ends[block][side], cluster = blocks.cluster[block][side];
    if (ends == 0) continue;
    const double size = blocks.size[cluster], softness = state.softness[cluster];
    const int64_t here = state.ends[cluster][home], there = state.ends[cluster][goal];
    added += present(size, here - ends, softness) - present(size, here, softness);
    added += present(size, there + ends, softness) - present(size, there, softness);
    left += present(size, here - ends, 1.0) - present(size, here, 1.0);
    came += present(size, there + ends, 1.0) - present(size, there, 1.0);
  }
  const double limit = schedule.clone_balance * state.all_clones[0] /
                       static_cast<double>(state.clones.size);
  const double at_home = state.clones[home] - limit, at_goal = state.clones[goal] - limit;
  double beyond = std::max(at_home + left, 0.0) - std::max(at_home, 0.0);
  beyond += std::max(at_goal + came, 0.0) - std::max(at_goal, 0.0);
  added += schedule.clone_weight * beyond;
  if (added > most_added) return;
  state.part[block] = goal;
  state.load[home] -= edges;
  state.load[goal] += edges;
  state.clones[home] += left;
  state.clones[goal] += came;
  state.all_clones[0] += left + came;
  for (int64_t side = 0; side < 2; ++side) {
    const int64_t cluster = blocks.cluster[block][side], ends = blocks.ends[block][side];
    state.ends[cluster][home] -= ends;
    state.ends[cluster][goal] += ends;
  }
}

}  // namespace

void begin_blocks(const BlocksView& blocks, const BlockState& state, In<int64_t> order) {
  for (const int64_t block : order) {
    const int64_t part = least_at(state.load);
    state.part[block] = part;
    state.load[part] += blocks.edges[block];
    for (int64_t side = 0; side < 2; ++side) {
      state.ends[blocks.cluster[block][side]][part] += blocks.ends[block][side];
    }
  }
}

void anneal_blocks(const BlocksView& blocks, const BlockState& state, double most_load,
                   int64_t sweeps, uint64_t start, const Schedule& schedule) {
  const int64_t num_blocks = blocks.edges.size, num_parts = state.load.size;
  const int64_t num_clusters = blocks.size.size;
  double vertices = 0.0;
  for (const double size : blocks.size) vertices += size;
  const double unit =
      vertices / static_cast<double>(num_clusters) * std::sqrt(static_cast<double>(num_parts));
  Made<double> links(num_clusters);
  for (int64_t cluster = 0; cluster < num_clusters; ++cluster) {
    int64_t ends = 0;
    for (const int64_t count : state.ends[cluster]) ends += count;
    links[cluster] = static_cast<double>(ends) / std::max(blocks.size[cluster], 1.0);
  }
  uint64_t bits = start;
  for (int64_t sweep = 0; sweep < sweeps; ++sweep) {
    const double done = static_cast<double>(sweep) / static_cast<double>(sweeps);
    const double heat = schedule.hot * unit * std::pow(schedule.cold / schedule.hot, done);
    const double power =
        schedule.soft_power *
        std::max(1.0 - static_cast<double>(sweep) /
                           (schedule.soft_share * static_cast<double>(sweeps)),
                 0.0);
    for (int64_t cluster = 0; cluster < num_clusters; ++cluster) {
      state.softness[cluster] = std::max(std::pow(links[cluster] / 2, power), 1.0);
    }
    count_state_clones(blocks, state);
    for (int64_t i = 0; i < num_blocks; ++i) {
      bits = mix(bits);
      const int64_t block = below(bits, num_blocks);
      bits = mix(bits);
      const int64_t goal = below(bits, num_parts);
      bits = mix(bits);
      const double chance = static_cast<double>(bits >> 11) / 9007199254740992.0;
      if (goal == state.part[block]) continue;
      try_block(blocks, state, block, goal, most_load, -heat * std::log(1.0 - chance), schedule);
    }
  }
}

}  // namespace distgnn
