#include "bind_partition.h"
#include "partition_arcs.h"
#include "partition_sort.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// The functions whose numbers of edges are 32 bits wide where they fit, else 64.
template <typename Number>
void bind_numbers(nb::module_& m) {
  using namespace nb::literals;
  define(
      m, "sort_by_head",
      [](int64_t first, int64_t last, InVector<int64_t> src, InVector<int64_t> dst,
         InVector<int64_t> order, InVector<int64_t> start, Vector<int32_t> source,
         Vector<Number> number) {
        unlocked([&] {
          sort_by_head(first, last, view(src), view(dst), view(order), view(start), view(source),
                       view(number));
        });
      },
      "first"_a, "last"_a, "src", "dst", "order", "start", "source", "number");
  define(
      m, "sort_by_source",
      [](int64_t first, int64_t last, InVector<int64_t> by_head, InVector<int32_t> source,
         InVector<Number> number, InVector<int64_t> start, Vector<int32_t> head,
         Vector<Number> edge) {
        unlocked([&] {
          sort_by_source(first, last, view(by_head), view(source), view(number), view(start),
                         view(head), view(edge));
        });
      },
      "first"_a, "last"_a, "by_head", "source", "number", "start", "head", "edge");
  define(
      m, "merge_arcs",
      [](Vector<int64_t> start, Vector<int32_t> head, InVector<Number> edge, InVector<int32_t> part,
         Vector<Number> of_edge) {
        return numpy(unlocked([&] {
          return merge_arcs(view(start), view(head), view(edge), view(part), view(of_edge));
        }));
      },
      "start", "head", "edge", "part", "of_edge");
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
      [](InVector<int32_t> weight, InVector<Number> mate, bool is_simple) {
        return numpy(unlocked([&] { return with_mates(view(weight), view(mate), is_simple); }));
      },
      "weight", "mate", "is_simple"_a);
  define(
      m, "edges_of_parts",
      [](InVector<int32_t> part, InVector<Number> weight, int64_t num_parts) {
        return numpy(unlocked([&] { return edges_of_parts(view(part), view(weight), num_parts); }));
      },
      "part", "weight", "num_parts"_a);
}

}  // namespace
}  // namespace distgnn

void distgnn::bind_partition_arcs(nb::module_& m) {
  using namespace nb::literals;
  bind_numbers<int32_t>(m);
  bind_numbers<int64_t>(m);
  define(
      m, "starts_of",
      [](InVector<int64_t> ends, int64_t num_vertices) {
        return numpy(unlocked([&] { return starts_of(view(ends), num_vertices); }));
      },
      "ends", "num_vertices"_a);
  define(
      m, "sort_edges",
      [](InVector<int32_t> row, InVector<int32_t> column, InVector<int32_t> rank) {
        return numpy(unlocked([&] { return sort_edges(view(row), view(column), view(rank)); }));
      },
      "row", "column", "rank");
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
      [](InVector<int32_t> mate, InVector<int32_t> arc_part) {
        return unlocked([&] { return are_together(view(mate), view(arc_part)); });
      },
      "mate", "arc_part");
  define(
      m, "rows_read",
      [](InVector<int64_t> start, InVector<int32_t> arc_part, InVector<int32_t> root_part,
         int64_t num_parts) {
        return unlocked(
            [&] { return rows_read(view(start), view(arc_part), view(root_part), num_parts); });
      },
      "start", "arc_part", "root_part", "num_parts"_a);
  define(
      m, "rows_written",
      [](InVector<int32_t> head, InVector<int32_t> arc_part, InVector<int32_t> root_part,
         Matrix<std::uint64_t> is_written) {
        return unlocked([&] {
          return rows_written(view(head), view(arc_part), view(root_part), sets(is_written));
        });
      },
      "head", "arc_part", "root_part", "is_written");
  define(
      m, "count_clones",
      [](InVector<int64_t> start, InVector<int32_t> head, InVector<int32_t> arc_part,
         InVector<int32_t> root_part, Matrix<std::uint64_t> is_there, Vector<int64_t> clones) {
        unlocked([&] {
          count_clones({view(start), view(head)}, view(arc_part), view(root_part), sets(is_there),
                       view(clones));
        });
      },
      "start", "head", "arc_part", "root_part", "is_there", "clones");
  define(
      m, "spread_roots",
      [](InVector<int64_t> order, InVector<int64_t> start, InVector<int32_t> candidate,
         int64_t num_parts) {
        return numpy(unlocked(
            [&] { return spread_roots(view(order), view(start), view(candidate), num_parts); }));
      },
      "order", "start", "candidate", "num_parts"_a);
}
