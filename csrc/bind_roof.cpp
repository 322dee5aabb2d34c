#include "bindings.h"
#include "roof.h"

void distgnn::bind_roof(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "gather_roof",
      [](Vector<const std::int64_t> indptr, Vector<const std::int32_t> indices,
         Matrix<const float> x, Matrix<float> out, const WalkOrder* walk) {
        const CsrView graph = csr_view(indptr, indices);
        check_has_rows("the edges read from no rows", indices.shape(0), x.shape(0));
        check_extents("out", out, indptr.shape(0) - 1, 16);
        if (x.shape(1) < 16) throw nb::value_error("the width must be at least 16");
        const WalkOrderView view = walk_view(walk, graph);
        const nb::gil_scoped_release unlocked;
        gather_roof(graph, view, x.data(), static_cast<std::int64_t>(x.shape(1)), out.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "x"_a.noconvert(), "out"_a.noconvert(),
      nb::kw_only(), "walk"_a.none() = nb::none());
}
