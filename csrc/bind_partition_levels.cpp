#include "bind_partition.h"
#include "partition_levels.h"
#include "partition_rows.h"

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

// The fields in the order of RowChunk in partition/large/rows.py.
RowsView rows_of(const nb::tuple& given) {
  return {nb::cast<int64_t>(given[0]), field<const int64_t>(given, 1),
          field<const int32_t>(given, 2), field<const int32_t>(given, 3)};
}
// The fields in the order of Clusters in partition/large/clusters.py.
JoinedView joined_of(const nb::tuple& given) {
  return {field<int32_t>(given, 0), field<int64_t>(given, 1), field<const int64_t>(given, 2)};
}
// The fields in the order of Parts and VertexWeights in partition/large/improve.py.
PartsView parts_of(const nb::tuple& given) {
  return {field<int32_t>(given, 0), matrix_field<int64_t>(given, 1), field<const int64_t>(given, 2),
          field<int64_t>(given, 3)};
}
WeightsView weights_of(const nb::tuple& given) {
  return {field<const int64_t>(given, 0), field<const int64_t>(given, 1)};
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
  define(
      m, "join_clusters",
      [](Fields rows, Fields clusters, int64_t most, uint64_t seed) {
        const RowsView slice = rows_of(rows);
        const JoinedView joined = joined_of(clusters);
        return unlocked([&] { return join_clusters(slice, joined, most, seed); });
      },
      "rows"_a, "clusters"_a, "most"_a, "seed"_a);
  define(
      m, "gather_alone",
      [](Fields rows, Fields clusters, int64_t most, Vector<int32_t> bins) {
        const RowsView slice = rows_of(rows);
        const JoinedView joined = joined_of(clusters);
        unlocked([&] { gather_alone(slice, joined, most, view(bins)); });
      },
      "rows"_a, "clusters"_a, "most"_a, "bins");
  define(
      m, "change_parts",
      [](Fields rows, Fields parts, Fields sizes, int64_t price) {
        const RowsView slice = rows_of(rows);
        const PartsView these = parts_of(parts);
        const WeightsView own = weights_of(sizes);
        return unlocked([&] { return change_parts(slice, these, own, price); });
      },
      "rows"_a, "parts"_a, "sizes"_a, "price"_a);
}
