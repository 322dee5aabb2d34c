#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>

#include "bindings.h"
#include "walk_order.h"
#include "walk_order_io.h"

namespace distgnn {
namespace {

// A read-only array that lives in a walk order and keeps it alive.
template <typename T>
nb::ndarray<nb::numpy, const T, nb::ndim<1>> array_of(const std::vector<T>& values,
                                                      nb::handle walk) {
  return {values.data(), {values.size()}, walk};
}

WalkOrder restored(Vector<const std::int64_t> indptr, Vector<const std::int32_t> indices,
                   Vector<const std::int32_t> row, Vector<const std::int64_t> begin,
                   Vector<const std::int64_t> task, std::int64_t num_long, bool is_clustered,
                   double sources_per_edge, double ordered_sources_per_edge) {
  const CsrView graph = csr_view(indptr, indices);
  const std::size_t num_segments = row.shape(0);
  check_equal("begin has the wrong length", begin.shape(0),
              num_segments == 0 ? 0 : num_segments + 1);
  if (task.shape(0) == 0) throw nb::value_error("task is empty, expected one more than tasks");
  const Layout layout{row.data(),
                      begin.data(),
                      static_cast<std::int64_t>(num_segments),
                      task.data(),
                      static_cast<std::int64_t>(task.shape(0)) - 1,
                      num_long,
                      is_clustered,
                      sources_per_edge,
                      ordered_sources_per_edge};
  WalkOrder walk;
  const char* problem = nullptr;
  {
    const nb::gil_scoped_release unlocked;
    problem = restore_walk_order(graph, layout, &walk);
  }
  if (problem == nullptr) return walk;
  throw nb::value_error((std::string("the layout is not of this graph: ") + problem).c_str());
}

void check_below(const char* what, const Vector<const std::int32_t>& values, std::int64_t limit) {
  const auto* last = values.data() + values.shape(0);
  const auto* wrong = std::find_if(values.data(), last, [limit](std::int32_t value) {
    return value < 0 || value >= limit;
  });
  if (wrong == last) return;
  const std::string wanted =
      *wrong < 0 ? "at least 0" : "less than " + std::to_string(limit);
  throw nb::value_error(
      (std::string(what) + ", got " + std::to_string(*wrong) + ", expected " + wanted).c_str());
}

}  // namespace
}  // namespace distgnn

void distgnn::bind_walk_order(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<WalkOrder>(m, "WalkOrder", "The walk over a graph; see distgnn.kernels.walk_order.")
      .def_ro("num_rows", &WalkOrder::num_rows)
      .def_ro("num_edges", &WalkOrder::num_edges)
      .def_ro("is_clustered", &WalkOrder::is_clustered)
      .def_ro("is_cut", &WalkOrder::is_cut)
      .def_ro("num_long", &WalkOrder::num_long)
      .def_ro("sources_per_edge", &WalkOrder::sources_per_edge)
      .def_ro("ordered_sources_per_edge", &WalkOrder::ordered_sources_per_edge)
      .def_prop_ro("num_tasks", [](const WalkOrder& walk) { return walk.task.size() - 1; })
      .def_prop_ro("row",
                   [](nb::handle self) { return array_of(nb::cast<WalkOrder&>(self).row, self); })
      .def_prop_ro("begin",
                   [](nb::handle self) { return array_of(nb::cast<WalkOrder&>(self).begin, self); })
      .def_prop_ro("task",
                   [](nb::handle self) { return array_of(nb::cast<WalkOrder&>(self).task, self); });
  m.def(
      "make_walk_order",
      [](Vector<const std::int64_t> indptr, Vector<const std::int32_t> indices,
         std::int64_t num_sources, std::optional<bool> clusters, std::optional<bool> blocks,
         std::optional<Vector<const std::int32_t>> rank) {
        const CsrView graph = csr_view(indptr, indices);
        if (num_sources >= 0) check_numbered("sources", static_cast<std::size_t>(num_sources));
        // Cheap beside the planning, which writes at these positions.
        check_below("indices must be below num_sources", indices, num_sources);
        if (rank) {
          check_equal("rank has the wrong number of sources", rank->shape(0),
                      static_cast<std::size_t>(num_sources));
          check_below("ranks must be below num_sources", *rank, num_sources);
        }
        const nb::gil_scoped_release unlocked;
        return make_walk_order(graph, num_sources, {clusters, blocks},
                               rank ? rank->data() : nullptr);
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "num_sources"_a, nb::kw_only(),
      "clusters"_a.none(), "blocks"_a.none(), "rank"_a.noconvert().none());
  m.def("restore_walk_order", &restored, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        nb::kw_only(), "row"_a.noconvert(), "begin"_a.noconvert(), "task"_a.noconvert(),
        "num_long"_a, "is_clustered"_a, "sources_per_edge"_a, "ordered_sources_per_edge"_a);
}
