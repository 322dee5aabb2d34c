// Orders of the roots inside a part, and the model of a cache that compares them; partition/orders/
// and partition/reuse.py describe the arrays.
#pragma once

#include "partition_array.h"

namespace distgnn {

// Whether edges and their reverses have equal sums of hashes.
bool has_reverses(In<std::int32_t> src, In<std::int32_t> dst);

struct RootLinks {
  Made<std::int64_t> indptr;
  Made<std::int32_t> indices;
};
// Both ends of all edges, sorted by counting.
RootLinks link_ends(In<std::int32_t> src, In<std::int32_t> dst, std::int64_t num_vertices);

// What each vertex was merged into, or -1; the links are overwritten.
Made<std::int64_t> merge_communities(In<std::int64_t> indptr, Array<std::int32_t> link,
                                     In<std::int64_t> visits);
// All vertices, each before what was merged into it, in the order of the mergers.
Made<std::int64_t> walk_mergers(In<std::int64_t> parent, In<std::int64_t> visits);
// A label per vertex; no more than `largest` vertices share one.
Made<std::int32_t> propagate_labels(In<std::int64_t> indptr, In<std::int32_t> indices,
                                    In<std::int64_t> visits, std::int64_t largest,
                                    std::int64_t num_rounds);
// Fetches into a cache of so many rows, emptied whenever it is full.
std::int64_t count_fetches(In<std::int64_t> begin, In<std::int64_t> end, In<std::int32_t> indices,
                           std::int64_t num_sources, std::int64_t num_rows);

}  // namespace distgnn
