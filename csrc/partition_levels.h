// Clusters of vertices, the graph of clusters, and vertices that move between groups;
// partition/methods/multilevel.py describes the arrays.
#pragma once

#include "partition_arcs.h"

namespace distgnn {

// Groups, clusters or parts: the group and the size of each vertex, what each group holds, and up
// to which sum of sizes it takes in vertices.
struct GroupsView {
  In<std::int32_t> group;
  In<std::int64_t> size;
  In<std::int64_t> load;
  std::int64_t most = 0;
};
// For each vertex of a range the group that most of its links lead to, among those with room.
void choose_groups(std::int64_t first, std::int64_t last, const Links& links,
                   const GroupsView& groups, std::uint64_t seed, Array<std::int32_t> choice);
// Moves the vertices of a range, in order, where there is still room; returns how many moved.
std::int64_t join_groups(std::int64_t first, std::int64_t last, In<std::int32_t> choice,
                         In<std::int64_t> size, std::int64_t most, Array<std::int32_t> group,
                         Array<std::int64_t> load);

// Clusters, numbered: that of each vertex, and the vertices by cluster.
struct ClustersView {
  In<std::int32_t> label;
  In<std::int64_t> order;
  In<std::int64_t> start;
};
// Writes the other clusters that links of each cluster of a range lead to, in the order in which they
// are met, with the weight of those links, from a place on; counts them.
void merge_cluster_links(std::int64_t first, std::int64_t last, const Links& links,
                         const ClustersView& clusters, std::int64_t place,
                         Array<std::int64_t> count, Array<std::int32_t> neighbor,
                         Array<std::int64_t> weight);

}  // namespace distgnn
