// Blocks of links between clusters, and the annealing that gives them parts;
// partition/methods/blocks.py describes the arrays.
#pragma once

#include "partition_balance.h"

namespace distgnn {

// Links and edges between clusters, each link at both of its ends; the matrices are 0 at first.
void count_blocks(const Links& links, In<std::int32_t> label, Rows2<std::int64_t> ends,
                  Rows2<std::int64_t> edges);
// The part of each arc's block.
Made<std::int32_t> spread_blocks(const ArcView& arcs, In<std::int32_t> label,
                                 Rows2<const std::int32_t> part_of);
// Sets of the clusters at the other ends of the arcs of every step-th vertex; empty at first.
void note_clusters(const ArcView& arcs, In<std::int32_t> label, std::int64_t step, Sets heads,
                   Sets tails);
// Rows of the sampled vertices, each with its root where that saves the most.
std::int64_t count_rows(In<std::int32_t> label, Sets heads, Sets tails,
                        Rows2<const std::int32_t> part_of, std::int64_t num_parts);

struct BlocksView {
  In<double> size;
  Rows2<const std::int64_t> cluster;
  Rows2<const std::int64_t> ends;
  In<std::int64_t> edges;
};
struct BlockState {
  Array<std::int64_t> part;
  Rows2<std::int64_t> ends;
  Array<std::int64_t> load;
  Array<double> clones;
  Array<double> all_clones;
  Array<double> softness;
};
// Heat at first and at last, the power of softness at first and the share of the sweeps it lasts,
// the limit of clones over the mean, and how much those beyond count.
struct Schedule {
  double hot = 0.0;
  double cold = 0.0;
  double soft_power = 0.0;
  double soft_share = 0.0;
  double clone_balance = 0.0;
  double clone_weight = 0.0;
};
// Gives every block, in order, to the part with the fewest edges.
void begin_blocks(const BlocksView& blocks, const BlockState& state, In<std::int64_t> order);
// Moves blocks at random, ever less where that adds clones.
void anneal_blocks(const BlocksView& blocks, const BlockState& state, double most_load,
                   std::int64_t sweeps, std::uint64_t start, const Schedule& schedule);

}  // namespace distgnn
