// Arcs: the distinct ordered pairs of vertices that edges join; partition/arcs.py describes them.
#pragma once

#include "partition_array.h"

namespace distgnn {

struct ArcView {
  In<std::int64_t> start;
  In<std::int32_t> head;
};

// Numbers that are 32 bits wide, or 64 where sums over clusters need them.
struct Weights {
  In<std::int32_t> narrow;
  In<std::int64_t> wide;

  std::int64_t operator[](std::int64_t i) const {
    return wide.data == nullptr ? narrow[i] : wide[i];
  }
};

struct Links {
  In<std::int64_t> indptr;
  In<std::int32_t> indices;
  Weights weight;
};

// Where the edges of each vertex begin, (num_vertices + 1,), grouped by one of their ends.
template <typename End>
Made<std::int64_t> starts_of(In<End> ends, std::int64_t num_vertices);

// Functions of a first and a last item are called for several ranges at a time.
// Sorting by counting: what a range has of each vertex, and then its things, where those go next.
// Edges in an order (empty: as they are given), by destination; of each its source and its number.
template <typename End>
Made<std::int64_t> count_heads(std::int64_t first, std::int64_t last, In<End> dst,
                               In<std::int64_t> order, std::int64_t num_vertices);
template <typename End, typename Number>
void sort_by_head(std::int64_t first, std::int64_t last, Array<std::int64_t> position, In<End> src,
                  In<End> dst, In<std::int64_t> order, Array<Number> sorted);
// Edges to a range of destinations, by source; they come by destination, which stays their order.
template <typename Number>
Made<std::int64_t> count_sources(std::int64_t first, std::int64_t last, In<std::int64_t> by_head,
                                 In<Number> sorted);
template <typename Number>
void sort_by_source(std::int64_t first, std::int64_t last, Array<std::int64_t> position,
                    In<std::int64_t> by_head, In<Number> sorted, Array<std::int32_t> head,
                    Array<Number> edge);
// Rows of a range of vertices, in which equal neighbours (of equal parts) are to be one arc.
template <typename Number>
struct Neighbors {
  In<std::int64_t> start;
  In<std::int32_t> head;
  In<Number> edge;
  In<std::int32_t> part;
};
template <typename Number>
std::int64_t count_arcs(std::int64_t first, std::int64_t last, const Neighbors<Number>& all);
// Writes the arcs of a range, the first of which has a number. Heads may be written over.
template <typename Number>
void merge_arcs(std::int64_t first, std::int64_t last, std::int64_t first_arc,
                const Neighbors<Number>& all, Array<std::int64_t> arc_start,
                Array<std::int32_t> arc_head, Array<std::int32_t> weight, Array<Number> of_edge);
// Finds the arc back of each arc from a range of vertices; false if one has none.
template <typename Number>
bool pair_arcs(std::int64_t first, std::int64_t last, In<std::int64_t> start, In<std::int32_t> head,
               Array<Number> mate);
// The weight of each arc of a range and of its mate, unless that is the arc itself: a loop, of which
// the number is returned.
template <typename Number>
std::int64_t with_mates(std::int64_t first, std::int64_t last, In<std::int32_t> weight,
                        In<Number> mate, bool is_simple, Array<std::int32_t> both);

// The parts at a range of indices, which may lie all over memory.
template <typename Number>
void take_parts(std::int64_t first, std::int64_t last, In<std::int32_t> parts, In<Number> index,
                Array<std::int32_t> taken);
// The places of the ends of some edges.
template <typename Number, typename End>
void take_ends(In<Number> edge, In<End> end, In<std::int32_t> place, Array<std::int32_t> taken);
// Of some edges those between two different vertices of one part, by the vertices' numbers there.
struct InnerEdges {
  Made<std::int32_t> source;
  Made<std::int32_t> target;
};
template <typename Number, typename End>
InnerEdges inner_edges(In<Number> edge, In<End> src, In<End> dst, In<std::int32_t> owner,
                       In<std::int32_t> number, std::int32_t part);
// Edges by row: where those of each row begin, the other end of each, and its position before.
struct SortedEdges {
  Made<std::int64_t> indptr;
  Made<std::int32_t> indices;
  Made<std::int64_t> edge;
};
// Sorts edges by row, then by where the column stands in an order; equal ones keep their order.
SortedEdges sort_edges(In<std::int32_t> row, In<std::int32_t> column, In<std::int64_t> order);
// Sorts edges by row into edges by column, then by where the row stands in an order.
SortedEdges transpose_edges(In<std::int64_t> indptr, In<std::int32_t> indices,
                            In<std::int64_t> order);

struct BothWays {
  Made<std::int64_t> indptr;
  Made<std::int32_t> indices;
  Made<std::int32_t> weight;
};
// Each row merged with the same row of the transpose, without loops.
BothWays both_ways(In<std::int64_t> start, In<std::int32_t> head, In<std::int32_t> weight);

template <typename Weight>
Made<std::int64_t> edges_of_parts(std::int64_t first, std::int64_t last, In<std::int32_t> part,
                                  In<Weight> weight, std::int64_t num_parts);
// Places the items of a range where those of their part go next, which moves on.
template <typename Number>
void group_items(std::int64_t first, std::int64_t last, Array<std::int64_t> position,
                 In<std::int32_t> part, Array<Number> order);
// Marks the pairs of a vertex and a part of a range of edges; pairs are by part, then vertex.
template <typename End>
void mark_slots(std::int64_t first, std::int64_t last, In<End> vertex, In<std::int32_t> part,
                std::int64_t num_vertices, Array<std::uint8_t> is_slot);

// Arcs as entries of two nodes a vertex, one that reads and one that writes.
struct Apart {
  Made<std::int64_t> start;
  Made<std::int32_t> neighbor;
  Made<std::int32_t> mate;
};
Apart arcs_apart(In<std::int64_t> start, In<std::int32_t> head);
// Whether every arc of a range is in the part of its mate.
bool are_together(std::int64_t first, std::int64_t last, In<std::int32_t> mate,
                  In<std::int32_t> arc_part);

// Raw rows that travel: parts where a vertex of a range is a source, but its own.
std::int64_t rows_read(std::int64_t first, std::int64_t last, In<std::int64_t> start,
                       In<std::int32_t> arc_part, In<std::int32_t> root_part,
                       std::int64_t num_parts);
// Partial sums that travel, of a range of arcs; the sets, of all ranges, are empty at first.
std::int64_t rows_written(std::int64_t first, std::int64_t last, In<std::int32_t> head,
                          In<std::int32_t> arc_part, In<std::int32_t> root_part, Sets is_written);
// Roots and leaves of each part that a range of vertices is first to note in the sets.
Made<std::int64_t> count_clones(std::int64_t first, std::int64_t last, const ArcView& arcs,
                                In<std::int32_t> arc_part, In<std::int32_t> root_part,
                                Sets is_there, std::int64_t num_parts);
// Gives each vertex, in order, the candidate part with the fewest roots.
Made<std::int32_t> spread_roots(In<std::int64_t> order, In<std::int64_t> start,
                                In<std::int32_t> candidate, std::int64_t num_parts);

}  // namespace distgnn
