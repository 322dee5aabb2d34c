#include "bind_partition.h"
#include "partition_levels.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

// The fields in the order of _Clusters in partition/methods/multilevel.py.
ClustersView clusters_of(const nb::tuple& given) {
  return {field<const int32_t>(given, 0), field<const int64_t>(given, 1),
          field<const int64_t>(given, 2)};
}

}  // namespace
}  // namespace distgnn

void distgnn::bind_partition_levels(nb::module_& m) {
  using namespace nb::literals;
  define(
      m, "choose_groups",
      [](int64_t first, int64_t last, Fields adjacency, InVector<int32_t> group,
         InVector<int64_t> size, InVector<int64_t> load, int64_t most, uint64_t seed,
         Vector<int32_t> choice) {
        const Links links = links_of(adjacency);
        const GroupsView groups{view(group), view(size), view(load), most};
        unlocked([&] { choose_groups(first, last, links, groups, seed, view(choice)); });
      },
      "first"_a, "last"_a, "adjacency"_a, "group", "size", "load", "most"_a, "seed"_a, "choice");
  define(
      m, "join_groups",
      [](int64_t first, int64_t last, InVector<int32_t> choice, InVector<int64_t> size,
         int64_t most, Vector<int32_t> group, Vector<int64_t> load) {
        return unlocked([&] {
          return join_groups(first, last, view(choice), view(size), most, view(group), view(load));
        });
      },
      "first"_a, "last"_a, "choice", "size", "most"_a, "group", "load");
  define(
      m, "merge_cluster_links",
      [](int64_t first, int64_t last, Fields adjacency, Fields clusters, int64_t place,
         Vector<int64_t> count, Vector<int32_t> neighbor, Vector<int64_t> weight) {
        const Links links = links_of(adjacency);
        const ClustersView these = clusters_of(clusters);
        unlocked([&] {
          merge_cluster_links(first, last, links, these, place, view(count), view(neighbor),
                              view(weight));
        });
      },
      "first"_a, "last"_a, "adjacency"_a, "clusters"_a, "place"_a, "count", "neighbor", "weight");
}
