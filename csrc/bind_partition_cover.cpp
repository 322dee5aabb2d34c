#include "bind_partition.h"
#include "partition_cover.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// The fields in the order of CutEdges in partition/methods/cut_edges.py.
CutEdgesView edges_of(const nb::tuple& given) {
  return {field<const int32_t>(given, 0), field<const int32_t>(given, 1),
          field<const int64_t>(given, 2), field<const int64_t>(given, 3),
          field<const int32_t>(given, 4), field<const int32_t>(given, 5),
          field<const int64_t>(given, 6)};
}
// The fields in the order of Cover there.
CoverView cover_of(const nb::tuple& given) {
  return {field<const bool>(given, 0), field<const bool>(given, 1), field<const bool>(given, 2),
          field<const bool>(given, 3)};
}
// The fields in the order of Bipartite in partition/methods/matching.py.
Bipartite graph_of(const nb::tuple& given) {
  return {field<const int64_t>(given, 0), field<const int32_t>(given, 1),
          nb::cast<int64_t>(given[2])};
}

}  // namespace
}  // namespace distgnn

void distgnn::bind_partition_cover(nb::module_& m) {
  using namespace nb::literals;
  define(
      m, "cut_arcs",
      [](int64_t first, int64_t last, InVector<int64_t> start, InVector<int32_t> head,
         InVector<int32_t> weight, InVector<int32_t> root_part, Vector<int32_t> arc_part,
         int64_t num_parts, bool one_way) {
        CutArcs found = unlocked([&] {
          return cut_arcs(first, last, {view(start), view(head)}, view(weight), view(root_part),
                          view(arc_part), num_parts, one_way);
        });
        return std::tuple(numpy(std::move(found.cut)), numpy(std::move(found.source)),
                          numpy(std::move(found.load)));
      },
      "first"_a, "last"_a, "start", "head", "weight", "root_part", "arc_part", "num_parts"_a,
      "one_way"_a);
  define(
      m, "number_slots",
      [](InVector<int32_t> vertex, InVector<int32_t> part, int64_t num_parts) {
        SlotNumbers found =
            unlocked([&] { return number_slots(view(vertex), view(part), num_parts); });
        return std::tuple(numpy(std::move(found.slot)), numpy(std::move(found.key)));
      },
      "vertex", "part", "num_parts"_a);
  define(
      m, "settled_edges",
      [](Fields edges, Fields cover, Vector<int64_t> load) {
        const CutEdgesView cut = edges_of(edges);
        const CoverView slots = cover_of(cover);
        Settled found = unlocked([&] { return settled_edges(cut, slots, view(load)); });
        return std::tuple(numpy(std::move(found.placed)), numpy(std::move(found.is_free)));
      },
      "edges"_a, "cover"_a, "load");
  define(
      m, "free_components",
      [](Fields edges, InVector<bool> is_free, bool is_paired) {
        const CutEdgesView cut = edges_of(edges);
        return numpy(unlocked([&] { return free_components(cut, view(is_free), is_paired); }));
      },
      "edges"_a, "is_free", "is_paired"_a);
  define(
      m, "cover_components",
      [](Fields edges, InVector<int32_t> placed, InVector<bool> is_free,
         Vector<bool> left_covered, Vector<bool> right_covered) {
        const CutEdgesView cut = edges_of(edges);
        unlocked([&] {
          cover_components(cut, view(placed), view(is_free), view(left_covered),
                           view(right_covered));
        });
      },
      "edges"_a, "placed", "is_free", "left_covered", "right_covered");
  define(
      m, "covered_edges",
      [](Fields edges, InVector<bool> left_covered, InVector<bool> right_covered,
         Vector<int32_t> placed, Vector<int64_t> load) {
        const CutEdgesView cut = edges_of(edges);
        return numpy(unlocked([&] {
          return covered_edges(cut, view(left_covered), view(right_covered), view(placed),
                               view(load));
        }));
      },
      "edges"_a, "left_covered", "right_covered", "placed", "load");
  define(
      m, "level_items",
      [](InVector<int32_t> first, InVector<int32_t> second, InVector<int64_t> weight,
         Vector<int64_t> load) {
        return numpy(unlocked(
            [&] { return level_items(view(first), view(second), view(weight), view(load)); }));
      },
      "first", "second", "weight", "load");
  define(
      m, "maximum_matching",
      [](Fields graph) {
        const Bipartite bipartite = graph_of(graph);
        Matching found = unlocked([&] { return maximum_matching(bipartite); });
        return std::tuple(numpy(std::move(found.left)), numpy(std::move(found.right)));
      },
      "graph"_a);
  define(
      m, "alternating_reach",
      [](Fields graph, InVector<int32_t> left, InVector<int32_t> right) {
        const Bipartite bipartite = graph_of(graph);
        Reach found =
            unlocked([&] { return alternating_reach(bipartite, view(left), view(right)); });
        return std::tuple(numpy(std::move(found.left)), numpy(std::move(found.right)));
      },
      "graph"_a, "left", "right");
}
