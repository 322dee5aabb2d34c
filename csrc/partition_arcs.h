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
Made<std::int64_t> starts_of(In<std::int64_t> ends, std::int64_t num_vertices);

// Edges of a range of destinations by destination, stably in an order (empty: as they are given).
template <typename Number>
void sort_by_head(std::int64_t first, std::int64_t last, In<std::int64_t> src, In<std::int64_t> dst,
                  In<std::int64_t> order, In<std::int64_t> start, Array<std::int32_t> source,
                  Array<Number> number);
// Edges of a range of sources by source; they come by destination, which stays the order of each.
template <typename Number>
void sort_by_source(std::int64_t first, std::int64_t last, In<std::int64_t> by_head,
                    In<std::int32_t> source, In<Number> number, In<std::int64_t> start,
                    Array<std::int32_t> head, Array<Number> edge);
// Keeps one of equal neighbours (and parts) in each row, in place; returns how many there were.
template <typename Number>
Made<std::int32_t> merge_arcs(Array<std::int64_t> start, Array<std::int32_t> head, In<Number> edge,
                              In<std::int32_t> part, Array<Number> of_edge);
// Finds the arc back of each arc to a range of vertices; false as soon as one has none.
template <typename Number>
bool pair_arcs(std::int64_t first, std::int64_t last, In<std::int64_t> start, In<std::int32_t> head,
               Array<Number> mate);
// The weight of each arc and of its mate, unless that is the arc itself.
template <typename Number>
Made<std::int32_t> with_mates(In<std::int32_t> weight, In<Number> mate, bool is_simple);

// The parts at a range of indices, which may lie all over memory.
template <typename Number>
void take_parts(std::int64_t first, std::int64_t last, In<std::int32_t> parts, In<Number> index,
                Array<std::int32_t> taken);
// Positions of edges sorted by row, then by the rank of the column; equal ones keep their order.
Made<std::int64_t> sort_edges(In<std::int32_t> row, In<std::int32_t> column,
                              In<std::int32_t> rank);

struct BothWays {
  Made<std::int64_t> indptr;
  Made<std::int32_t> indices;
  Made<std::int32_t> weight;
};
// Each row merged with the same row of the transpose, without loops.
BothWays both_ways(In<std::int64_t> start, In<std::int32_t> head, In<std::int32_t> weight);

template <typename Weight>
Made<std::int64_t> edges_of_parts(In<std::int32_t> part, In<Weight> weight, std::int64_t num_parts);

// Arcs as entries of two nodes a vertex, one that reads and one that writes.
struct Apart {
  Made<std::int64_t> start;
  Made<std::int32_t> neighbor;
  Made<std::int32_t> mate;
};
Apart arcs_apart(In<std::int64_t> start, In<std::int32_t> head);
// Whether every arc is in the part of its mate.
bool are_together(In<std::int32_t> mate, In<std::int32_t> arc_part);

// Raw rows that travel: parts where a vertex is a source, but its own.
std::int64_t rows_read(In<std::int64_t> start, In<std::int32_t> arc_part,
                       In<std::int32_t> root_part, std::int64_t num_parts);
// Partial sums that travel; the sets are empty.
std::int64_t rows_written(In<std::int32_t> head, In<std::int32_t> arc_part,
                          In<std::int32_t> root_part, Sets is_written);
// Adds the roots and leaves of each part; the sets are empty.
void count_clones(const ArcView& arcs, In<std::int32_t> arc_part, In<std::int32_t> root_part,
                  Sets is_there, Array<std::int64_t> clones);
// Gives each vertex, in order, the candidate part with the fewest roots.
Made<std::int32_t> spread_roots(In<std::int64_t> order, In<std::int64_t> start,
                                In<std::int32_t> candidate, std::int64_t num_parts);

}  // namespace distgnn
