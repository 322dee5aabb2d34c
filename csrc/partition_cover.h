// Edges between parts as a bipartite graph of slots, its matching, and edges placed by a cover;
// partition/methods/cover.py and matching.py describe the arrays.
#pragma once

#include "partition_arcs.h"

namespace distgnn {

struct CutArcs {
  Made<std::int64_t> cut;
  Made<std::int32_t> source;
  Made<std::int64_t> load;
};
// The arcs between parts of a range of vertices, one of the two that go there and back if one_way,
// their sources, and the edges inside each part; arcs get the part of their source's root.
CutArcs cut_arcs(std::int64_t first, std::int64_t last, const ArcView& arcs,
                 In<std::int32_t> weight, In<std::int32_t> root_part,
                 Array<std::int32_t> arc_part, std::int64_t num_parts, bool one_way);

struct SlotNumbers {
  Made<std::int32_t> slot;
  Made<std::int64_t> key;
};
// Numbers the distinct (vertex, part), vertices ascending.
SlotNumbers number_slots(In<std::int32_t> vertex, In<std::int32_t> part, std::int64_t num_parts);

struct CutEdgesView {
  In<std::int32_t> left;
  In<std::int32_t> right;
  In<std::int64_t> left_key;
  In<std::int64_t> right_key;
  In<std::int32_t> source_part;
  In<std::int32_t> destination_part;
  In<std::int64_t> multiplicity;
};
struct CoverView {
  In<bool> is_left_covered;
  In<bool> is_right_covered;
  In<bool> is_left_free;
  In<bool> is_right_free;
};
struct Settled {
  Made<std::int32_t> placed;
  Made<bool> is_free;
};
// Places the edges with one covered end, and adds them to the load; tells which are free.
Settled settled_edges(const CutEdgesView& edges, const CoverView& cover, Array<std::int64_t> load);
// Numbers what hangs together through free edges, in the order of its first slot: the component of
// each free edge. If is_paired, a slot that is read and written is one.
Made<std::int64_t> free_components(const CutEdgesView& edges, In<bool> is_free, bool is_paired);
// Covers free slots: exactly those whose component's edges live away from their roots.
void cover_components(const CutEdgesView& edges, In<std::int32_t> placed, In<bool> is_free,
                      Array<bool> left_covered, Array<bool> right_covered);
// Places each edge away from its covered end, and adds it to the load; returns those with both
// ends covered, which are not placed.
Made<std::int64_t> covered_edges(const CutEdgesView& edges, In<bool> left_covered,
                                 In<bool> right_covered, Array<std::int32_t> placed,
                                 Array<std::int64_t> load);
// Gives each item to the lighter of its two parts, in order.
Made<std::int32_t> level_items(In<std::int32_t> first, In<std::int32_t> second,
                               In<std::int64_t> weight, Array<std::int64_t> load);

struct Bipartite {
  In<std::int64_t> indptr;
  In<std::int32_t> indices;
  std::int64_t num_right = 0;
};
struct Matching {
  Made<std::int32_t> left;
  Made<std::int32_t> right;
};
Matching maximum_matching(const Bipartite& graph);

struct Reach {
  Made<bool> left;
  Made<bool> right;
};
// What alternating paths reach from the unmatched left vertices.
Reach alternating_reach(const Bipartite& graph, In<std::int32_t> left, In<std::int32_t> right);

}  // namespace distgnn
