#include <nanobind/stl/optional.h>

#include <optional>

#include "bindings.h"
#include "spmm.h"

namespace distgnn {
namespace {

using namespace nb::literals;
using std::int32_t;
using std::int64_t;

template <typename X, typename T, typename O>
void bind_sum(nb::module_& m) {
  m.def(
      "spmm_sum",
      [](Vector<const int64_t> indptr, Vector<const int32_t> indices,
         std::optional<Vector<const T>> weight, Rows<X> x, OutRows<O> out, bool accumulate,
         std::optional<Vector<const T>> row_factor, std::optional<Vector<const T>> source_factor,
         const WalkOrder* walk) {
        const CsrView graph = csr_view(indptr, indices);
        check_has_rows("the edges read from no rows", indices.shape(0), x.shape(0));
        if (weight) {
          check_equal("weight has the wrong length", weight->shape(0), indices.shape(0));
        }
        if (row_factor) {
          check_equal("row_factor has the wrong length", row_factor->shape(0), out.shape(0));
        }
        if (source_factor) {
          check_equal("source_factor has the wrong length", source_factor->shape(0), x.shape(0));
          if (weight) throw nb::value_error("there is a weight for edges or for sources, not both");
        }
        check_extents("out", out, indptr.shape(0) - 1, x.shape(1));
        const SumFactors<T> factors{weight ? weight->data() : nullptr,
                                    row_factor ? row_factor->data() : nullptr,
                                    source_factor ? source_factor->data() : nullptr};
        const WalkOrderView view = walk_view(walk, graph);
        const nb::gil_scoped_release unlocked;
        spmm_sum(graph, view, factors, rows_of<X>(x), static_cast<int64_t>(x.shape(1)), accumulate,
                 out_rows_of<O>(out));
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "weight"_a.noconvert().none(),
      "x"_a.noconvert(), "out"_a.noconvert(), nb::kw_only(), "accumulate"_a,
      "row_factor"_a.noconvert().none() = nb::none(),
      "source_factor"_a.noconvert().none() = nb::none(), "walk"_a.none() = nb::none());
}

}  // namespace

void bind_spmm(nb::module_& m) {
  bind_sum<float, float, float>(m);
  bind_sum<double, double, double>(m);
  bind_sum<Bf16, float, float>(m);
  bind_sum<Bf16, float, Bf16>(m);
}

}  // namespace distgnn
