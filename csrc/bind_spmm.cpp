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
         std::optional<Vector<const T>> row_factor, const Plan* plan) {
        const CsrView graph = csr_view(indptr, indices);
        check_has_rows("the edges read from no rows", indices.shape(0), x.shape(0));
        if (weight) {
          check_equal("weight has the wrong length", weight->shape(0), indices.shape(0));
        }
        if (row_factor) {
          check_equal("row_factor has the wrong length", row_factor->shape(0), out.shape(0));
        }
        check_equal("out has the wrong number of rows", out.shape(0), indptr.shape(0) - 1);
        check_equal("out has the wrong width", out.shape(1), x.shape(1));
        const SumFactors<T> factors{weight ? weight->data() : nullptr,
                                    row_factor ? row_factor->data() : nullptr};
        const PlanView view = plan_view(plan, graph);
        const nb::gil_scoped_release unlocked;
        spmm_sum(graph, view, factors, rows_of<X>(x), static_cast<int64_t>(x.shape(1)), accumulate,
                 out_rows_of<O>(out));
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "weight"_a.noconvert().none(),
      "x"_a.noconvert(), "out"_a.noconvert(), nb::kw_only(), "accumulate"_a,
      "row_factor"_a.noconvert().none() = nb::none(), "plan"_a.none() = nb::none());
}

template <typename T>
void bind_max(nb::module_& m) {
  m.def(
      "spmm_max",
      [](Vector<const int64_t> indptr, Vector<const int32_t> indices, Vector<const int64_t> key,
         Matrix<const T> x, Matrix<T> out, Matrix<int64_t> arg, Matrix<int64_t> arg_key,
         int64_t edge_offset, bool accumulate) {
        const CsrView graph = csr_view(indptr, indices);
        check_has_rows("the edges read from no rows", indices.shape(0), x.shape(0));
        check_equal("key has the wrong length", key.shape(0), x.shape(0));
        check_equal("out has the wrong number of rows", out.shape(0), indptr.shape(0) - 1);
        check_equal("out has the wrong width", out.shape(1), x.shape(1));
        check_same_shape("arg", arg, out);
        check_same_shape("arg_key", arg_key, out);
        if (edge_offset < 0) throw nb::value_error("edge_offset must not be negative");
        const MaxState<T> state{out.data(), arg.data(), arg_key.data()};
        const nb::gil_scoped_release unlocked;
        spmm_max(graph, key.data(), x.data(), static_cast<int64_t>(x.shape(1)), edge_offset,
                 accumulate, state);
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "key"_a.noconvert(), "x"_a.noconvert(),
      "out"_a.noconvert(), nb::kw_only(), "arg"_a.noconvert(), "arg_key"_a.noconvert(),
      "edge_offset"_a, "accumulate"_a);
}

template <typename T>
void bind_max_backward(nb::module_& m) {
  m.def(
      "spmm_max_backward",
      [](Vector<const int64_t> t_indptr, Vector<const int32_t> t_indices,
         Vector<const int64_t> t_edge, Matrix<const int64_t> arg, Matrix<const T> grad,
         Matrix<T> out, int64_t edge_offset, bool accumulate) {
        const CsrView transpose = csr_view(t_indptr, t_indices);
        check_has_rows("the edges read from no rows", t_indices.shape(0), grad.shape(0));
        check_equal("t_edge has the wrong length", t_edge.shape(0), t_indices.shape(0));
        check_same_shape("arg", arg, grad);
        check_equal("out has the wrong number of rows", out.shape(0), t_indptr.shape(0) - 1);
        check_equal("out has the wrong width", out.shape(1), grad.shape(1));
        const nb::gil_scoped_release unlocked;
        spmm_max_backward(transpose, t_edge.data(), arg.data(), grad.data(),
                          static_cast<int64_t>(grad.shape(1)), edge_offset, accumulate,
                          out.data());
      },
      "t_indptr"_a.noconvert(), "t_indices"_a.noconvert(), "t_edge"_a.noconvert(),
      "arg"_a.noconvert(), "grad"_a.noconvert(), nb::kw_only(), "out"_a.noconvert(),
      "edge_offset"_a, "accumulate"_a);
}

}  // namespace

void bind_spmm(nb::module_& m) {
  bind_sum<float, float, float>(m);
  bind_sum<double, double, double>(m);
  bind_sum<Bf16, float, float>(m);
  bind_sum<Bf16, float, Bf16>(m);
  bind_max<float>(m);
  bind_max<double>(m);
  bind_max_backward<float>(m);
  bind_max_backward<double>(m);
}

}  // namespace distgnn
