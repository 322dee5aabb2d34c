#include "bind_partition.h"
#include "partition_arcs.h"
#include "partition_sort.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

std::tuple<Numpy<int64_t>, Numpy<int32_t>, Numpy<int64_t>> sorted(SortedEdges edges) {
  return {numpy(std::move(edges.indptr)), numpy(std::move(edges.indices)),
          numpy(std::move(edges.edge))};
}

// Ends of edges are 32 bits wide where they fit, and so are numbers of edges; else 64.
template <typename End, typename Number>
void bind_ends(nb::module_& m) {
  using namespace nb::literals;
  define(
      m, "sort_by_head",
      [](int64_t first, int64_t last, Vector<int64_t> position, InVector<End> src,
         InVector<End> dst, InVector<int64_t> order, Vector<Number> sorted) {
        unlocked([&] {
          sort_by_head(first, last, view(position), view(src), view(dst), view(order),
                       view(sorted));
        });
      },
      "first"_a, "last"_a, "position", "src", "dst", "order", "sorted");
  define(
      m, "take_ends",
      [](InVector<Number> edge, InVector<End> end, InVector<int32_t> place,
         Vector<int32_t> taken) {
        unlocked([&] { take_ends(view(edge), view(end), view(place), view(taken)); });
      },
      "edge", "end", "place", "taken");
  define(
      m, "inner_edges",
      [](InVector<Number> edge, InVector<End> src, InVector<End> dst, InVector<int32_t> owner,
         InVector<int32_t> number, int32_t part) {
        InnerEdges inner = unlocked([&] {
          return inner_edges(view(edge), view(src), view(dst), view(owner), view(number), part);
        });
        return std::tuple(numpy(std::move(inner.source)), numpy(std::move(inner.target)));
      },
      "edge", "src", "dst", "owner", "number", "part"_a);
}

// The functions of numbers that are 32 bits wide where they fit, else 64.
template <typename Number>
void bind_numbers(nb::module_& m) {
  using namespace nb::literals;
  bind_ends<int32_t, Number>(m);
  bind_ends<int64_t, Number>(m);
  define(
      m, "starts_of",
      [](InVector<Number> ends, int64_t num_vertices) {
        return numpy(unlocked([&] { return starts_of(view(ends), num_vertices); }));
      },
      "ends", "num_vertices"_a);
  define(
      m, "sort_by_source",
      [](int64_t first, int64_t last, Vector<int64_t> position, InVector<int64_t> by_head,
         InVector<Number> sorted, Vector<int32_t> head, Vector<Number> edge) {
        unlocked([&] {
          sort_by_source(first, last, view(position), view(by_head), view(sorted), view(head),
                         view(edge));
        });
      },
      "first"_a, "last"_a, "position", "by_head", "sorted", "head", "edge");
  define(
      m, "count_heads",
      [](int64_t first, int64_t last, InVector<Number> dst, InVector<int64_t> order,
         int64_t num_vertices) {
        return numpy(unlocked(
            [&] { return count_heads(first, last, view(dst), view(order), num_vertices); }));
      },
      "first"_a, "last"_a, "dst", "order", "num_vertices"_a);
  define(
      m, "count_sources",
      [](int64_t first, int64_t last, InVector<int64_t> by_head, InVector<Number> sorted) {
        return numpy(
            unlocked([&] { return count_sources(first, last, view(by_head), view(sorted)); }));
      },
      "first"_a, "last"_a, "by_head", "sorted");
  define(
      m, "count_arcs",
      [](int64_t first, int64_t last, InVector<int64_t> start, InVector<int32_t> head,
         InVector<Number> edge, InVector<int32_t> part) {
        const Neighbors<Number> all{view(start), view(head), view(edge), view(part)};
        return unlocked([&] { return count_arcs(first, last, all); });
      },
      "first"_a, "last"_a, "start", "head", "edge", "part");
  define(
      m, "merge_arcs",
      [](int64_t first, int64_t last, int64_t first_arc, InVector<int64_t> start,
         InVector<int32_t> head, InVector<Number> edge, InVector<int32_t> part,
         Vector<int64_t> arc_start, Vector<int32_t> arc_head, Vector<int32_t> weight,
         Vector<Number> of_edge) {
        const Neighbors<Number> all{view(start), view(head), view(edge), view(part)};
        unlocked([&] {
          merge_arcs(first, last, first_arc, all, view(arc_start), view(arc_head), view(weight),
                     view(of_edge));
        });
      },
      "first"_a, "last"_a, "first_arc"_a, "start", "head", "edge", "part", "arc_start", "arc_head",
      "weight", "of_edge");
  define(
      m, "pair_arcs",
      [](int64_t first, int64_t last, InVector<int64_t> start, InVector<int32_t> head,
         Vector<Number> mate) {
        return unlocked(
            [&] { return pair_arcs(first, last, view(start), view(head), view(mate)); });
      },
      "first"_a, "last"_a, "start", "head", "mate");
  define(
      m, "take_parts",
      [](int64_t first, int64_t last, InVector<int32_t> parts, InVector<Number> index,
         Vector<int32_t> taken) {
        unlocked([&] { take_parts(first, last, view(parts), view(index), view(taken)); });
      },
      "first"_a, "last"_a, "parts", "index", "taken");
  define(
      m, "with_mates",
      [](int64_t first, int64_t last, InVector<int32_t> weight, InVector<Number> mate,
         bool is_simple, Vector<int32_t> both) {
        return unlocked([&] {
          return with_mates(first, last, view(weight), view(mate), is_simple, view(both));
        });
      },
      "first"_a, "last"_a, "weight", "mate", "is_simple"_a, "both");
  define(
      m, "edges_of_parts",
      [](int64_t first, int64_t last, InVector<int32_t> part, InVector<Number> weight,
         int64_t num_parts) {
        return numpy(unlocked(
            [&] { return edges_of_parts(first, last, view(part), view(weight), num_parts); }));
      },
      "first"_a, "last"_a, "part", "weight", "num_parts"_a);
  define(
      m, "group_items",
      [](int64_t first, int64_t last, Vector<int64_t> position, InVector<int32_t> part,
         Vector<Number> order) {
        unlocked([&] { group_items(first, last, view(position), view(part), view(order)); });
      },
      "first"_a, "last"_a, "position", "part", "order");
  define(
      m, "mark_slots",
      [](int64_t first, int64_t last, InVector<Number> vertex, InVector<int32_t> part,
         int64_t num_vertices, Vector<std::uint8_t> is_slot) {
        unlocked([&] {
          mark_slots(first, last, view(vertex), view(part), num_vertices, view(is_slot));
        });
      },
      "first"_a, "last"_a, "vertex", "part", "num_vertices"_a, "is_slot");
}

}  // namespace
}  // namespace distgnn

void distgnn::bind_partition_arcs(nb::module_& m) {
  using namespace nb::literals;
  bind_numbers<int32_t>(m);
  bind_numbers<int64_t>(m);
  define(
      m, "sort_edges",
      [](InVector<int32_t> row, InVector<int32_t> column, InVector<int64_t> order) {
        return sorted(unlocked([&] { return sort_edges(view(row), view(column), view(order)); }));
      },
      "row", "column", "order");
  define(
      m, "transpose_edges",
      [](InVector<int64_t> indptr, InVector<int32_t> indices, InVector<int64_t> order) {
        return sorted(
            unlocked([&] { return transpose_edges(view(indptr), view(indices), view(order)); }));
      },
      "indptr", "indices", "order");
  define(
      m, "sort_numbers",
      [](Vector<int64_t> values) { unlocked([&] { sort_numbers(view(values)); }); }, "values");
  define(
      m, "both_ways",
      [](InVector<int64_t> start, InVector<int32_t> head, InVector<int32_t> weight) {
        BothWays both = unlocked([&] { return both_ways(view(start), view(head), view(weight)); });
        return std::tuple(numpy(std::move(both.indptr)), numpy(std::move(both.indices)),
                          numpy(std::move(both.weight)));
      },
      "start", "head", "weight");
  define(
      m, "arcs_apart",
      [](InVector<int64_t> start, InVector<int32_t> head) {
        Apart apart = unlocked([&] { return arcs_apart(view(start), view(head)); });
        return std::tuple(numpy(std::move(apart.start)), numpy(std::move(apart.neighbor)),
                          numpy(std::move(apart.mate)));
      },
      "start", "head");
  define(
      m, "are_together",
      [](int64_t first, int64_t last, InVector<int32_t> mate, InVector<int32_t> arc_part) {
        return unlocked([&] { return are_together(first, last, view(mate), view(arc_part)); });
      },
      "first"_a, "last"_a, "mate", "arc_part");
  define(
      m, "rows_read",
      [](int64_t first, int64_t last, InVector<int64_t> start, InVector<int32_t> arc_part,
         InVector<int32_t> root_part, int64_t num_parts) {
        return unlocked([&] {
          return rows_read(first, last, view(start), view(arc_part), view(root_part), num_parts);
        });
      },
      "first"_a, "last"_a, "start", "arc_part", "root_part", "num_parts"_a);
  define(
      m, "rows_written",
      [](int64_t first, int64_t last, InVector<int32_t> head, InVector<int32_t> arc_part,
         InVector<int32_t> root_part, Matrix<std::uint64_t> is_written) {
        return unlocked([&] {
          return rows_written(first, last, view(head), view(arc_part), view(root_part),
                              sets(is_written));
        });
      },
      "first"_a, "last"_a, "head", "arc_part", "root_part", "is_written");
  define(
      m, "count_clones",
      [](int64_t first, int64_t last, InVector<int64_t> start, InVector<int32_t> head,
         InVector<int32_t> arc_part, InVector<int32_t> root_part, Matrix<std::uint64_t> is_there,
         int64_t num_parts) {
        return numpy(unlocked([&] {
          return count_clones(first, last, {view(start), view(head)}, view(arc_part),
                              view(root_part), sets(is_there), num_parts);
        }));
      },
      "first"_a, "last"_a, "start", "head", "arc_part", "root_part", "is_there", "num_parts"_a);
  define(
      m, "spread_roots",
      [](InVector<int64_t> order, InVector<int64_t> start, InVector<int32_t> candidate,
         int64_t num_parts) {
        return numpy(unlocked(
            [&] { return spread_roots(view(order), view(start), view(candidate), num_parts); }));
      },
      "order", "start", "candidate", "num_parts"_a);
}
