// Parts that grow by neighbour expansion, streams of edges, and hashes of vertices and links;
// partition/methods/expansion.py, hdrf.py and partition/stream.py describe the arrays.
#pragma once

#include "partition_array.h"

namespace distgnn {

// One step of splitmix64: scrambles 64 bits, one to one.
inline std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

Made<std::int64_t> vertex_hashes(std::int64_t num_vertices, std::uint64_t seed);
// Hashes both ends without regard to direction; the lowest bit is the direction.
Made<std::uint64_t> link_keys(In<std::int64_t> src, In<std::int64_t> dst, std::uint64_t seed);
// Moves the edges that come last in overfull parts to the least loaded ones.
void spill_edges(Array<std::int32_t> edge_part, In<std::int64_t> order, Array<std::int64_t> load,
                 std::int64_t cap);
void insert_all(Sets lives_on, In<std::int64_t> vertices, In<std::int32_t> parts);

struct EndsView {
  In<std::int64_t> src;
  In<std::int64_t> dst;
};
// HDRF: each edge to the part with the best score, edges of one link together.
void stream_edges(const EndsView& edges, In<std::int64_t> order, In<std::int64_t> degree,
                  Array<std::int32_t> edge_part, Sets lives_on, Array<std::int64_t> load,
                  std::int64_t cap, double balance_weight);

struct Incident {
  Made<std::int64_t> start;
  Made<std::int32_t> neighbor;
  Made<std::int64_t> link;
};
// The links at each listed vertex, by the number of the other end.
Incident incident_links(In<std::int64_t> low, In<std::int64_t> high, In<bool> is_listed);

struct IncidenceView {
  In<std::int64_t> start;
  Array<std::int32_t> neighbor;
  Array<std::int64_t> link;
};
struct PartLimits {
  std::int64_t num_parts = 0;
  std::int64_t share = 0;
  std::int64_t edges = 0;
  std::int64_t clones = 0;
};
// Grows the parts one after another; link_part is -1 at first. The lists are reordered.
void grow_parts(const IncidenceView& incidence, In<std::int64_t> weight, In<std::int64_t> seeds,
                const PartLimits& limits, Array<std::int32_t> link_part);

}  // namespace distgnn
