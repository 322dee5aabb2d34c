#include "bindings.h"

#include "plan.h"

void distgnn::bind_plan(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Plan>(m, "Plan", "The walk over a graph; see distgnn.plan.")
      .def_ro("num_rows", &Plan::num_rows)
      .def_ro("num_edges", &Plan::num_edges)
      .def_ro("is_clustered", &Plan::is_clustered)
      .def_ro("is_cut", &Plan::is_cut)
      .def_ro("num_long", &Plan::num_long)
      .def_ro("sources_per_edge", &Plan::sources_per_edge)
      .def_ro("planned_sources_per_edge", &Plan::planned_sources_per_edge)
      .def_prop_ro("num_tasks", [](const Plan& plan) { return plan.task.size() - 1; });
  m.def(
      "make_plan",
      [](Vector<const std::int64_t> indptr, Vector<const std::int32_t> indices,
         std::int64_t num_sources) {
        const CsrView graph = csr_view(indptr, indices);
        const auto* last = indices.data() + indices.shape(0);
        const auto* largest = std::max_element(indices.data(), last);
        // Cheap beside the planning, which writes at these positions.
        if (largest != last && *largest >= num_sources) {
          throw nb::value_error(("indices must be below num_sources, got " +
                                 std::to_string(*largest) + ", expected less than " +
                                 std::to_string(num_sources))
                                    .c_str());
        }
        const nb::gil_scoped_release unlocked;
        return make_plan(graph, num_sources);
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "num_sources"_a);
}
