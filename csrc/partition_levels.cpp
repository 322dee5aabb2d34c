// Algorithm: a vertex joins the group that the largest weight of its links leads to and that has
//   room; clusters become the vertices of a coarser graph. Vertices of a batch choose side by side,
//   as groups were before, and then move one by one.
// Source: Meyerhenke, Sanders and Schulz, "Partitioning complex networks via size-constrained
//   clustering", SEA 2014; Akhremtsev, Sanders and Schulz, "High-quality shared-memory graph
//   partitioning", IEEE Trans. Parallel and Distributed Systems 2020.
#include "partition_levels.h"

#include "partition_growth.h"
#include "partition_tally.h"

namespace distgnn {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

namespace {

// Weights of links; a single one stands for all.
class LinkWeights {
 public:
  explicit LinkWeights(const Links& links)
      : weight_(links.weight), step_(weight_.narrow.size == 1 ? 0 : 1) {}
  int64_t operator[](int64_t link) const { return weight_[step_ * link]; }

 private:
  Weights weight_;
  int64_t step_;
};

// Adds the links of a vertex by the groups of their other ends.
void add_links(const Links& links, const LinkWeights& weight, In<int32_t> group, int64_t vertex,
               Tally& tally) {
  const int64_t last = links.indices.size - 1;
  for (int64_t k = links.indptr[vertex]; k < links.indptr[vertex + 1]; ++k) {
    __builtin_prefetch(&group[links.indices[std::min(k + kAhead, last)]]);
    tally.add(group[links.indices[k]], weight[k]);
  }
}

}  // namespace

void choose_groups(int64_t first, int64_t last, const Links& links, const GroupsView& groups,
                   uint64_t seed, Array<int32_t> choice) {
  const LinkWeights weight(links);
  const uint64_t start = mix(seed);
  Tally tally;
  for (int64_t vertex = first; vertex < last; ++vertex) {
    add_links(links, weight, groups.group, vertex, tally);
    const int32_t home = groups.group[vertex];
    int32_t best = home;
    int64_t heaviest = tally.of(home);
    uint64_t highest = 0;
    tally.drain([&](int32_t group, int64_t total) {
      if (group == home || total < heaviest) return;
      if (groups.load[group] + groups.size[vertex] > groups.most) return;
      const uint64_t rank = mix(start ^ static_cast<uint64_t>(group));
      // Among equal ones its own stays, else the highest hash decides.
      if (total == heaviest && (best == home || rank <= highest)) return;
      best = group;
      heaviest = total;
      highest = rank;
    });
    choice[vertex] = best;
  }
}

int64_t join_groups(int64_t first, int64_t last, In<int32_t> choice, In<int64_t> size, int64_t most,
                    Array<int32_t> group, Array<int64_t> load) {
  int64_t num_moves = 0;
  for (int64_t vertex = first; vertex < last; ++vertex) {
    const int32_t home = group[vertex], goal = choice[vertex];
    if (goal == home || load[goal] + size[vertex] > most) continue;
    // Two that chose each other's group side by side would change places for ever.
    if (load[goal] == 0) continue;
    load[home] -= size[vertex];
    load[goal] += size[vertex];
    group[vertex] = goal;
    ++num_moves;
  }
  return num_moves;
}

void merge_cluster_links(int64_t first, int64_t last, const Links& links,
                         const ClustersView& clusters, int64_t place, Array<int64_t> count,
                         Array<int32_t> neighbor, Array<int64_t> weight) {
  const LinkWeights given(links);
  Tally tally;
  for (int64_t cluster = first; cluster < last; ++cluster) {
    for (int64_t i = clusters.start[cluster]; i < clusters.start[cluster + 1]; ++i) {
      add_links(links, given, clusters.label, clusters.order[i], tally);
    }
    const int64_t begin = place;
    tally.drain([&](int32_t other, int64_t total) {
      if (other == cluster) return;
      neighbor[place] = other;
      weight[place] = total;
      ++place;
    });
    count[cluster] = place - begin;
  }
}

}  // namespace distgnn
