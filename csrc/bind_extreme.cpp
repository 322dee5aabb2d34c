#include "bindings.h"
#include "spmm_extreme.h"

namespace distgnn {
namespace {

using namespace nb::literals;
using std::int32_t;
using std::int64_t;

template <typename T>
void bind_forward(nb::module_& m) {
  m.def(
      "spmm_extreme",
      [](Vector<const int64_t> indptr, Vector<const int32_t> indices, Matrix<const T> x,
         Matrix<T> out, Matrix<int32_t> source, bool is_max, const Plan* plan) {
        const CsrView graph = csr_view(indptr, indices);
        check_has_rows("the edges read from no rows", indices.shape(0), x.shape(0));
        check_equal("out has the wrong number of rows", out.shape(0), indptr.shape(0) - 1);
        check_equal("out has the wrong width", out.shape(1), x.shape(1));
        check_same_shape("source", source, out);
        const PlanView view = plan_view(plan, graph);
        const nb::gil_scoped_release unlocked;
        spmm_extreme(graph, view, x.data(), static_cast<int64_t>(x.shape(0)),
                     static_cast<int64_t>(x.shape(1)), is_max, out.data(), source.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "x"_a.noconvert(), "out"_a.noconvert(),
      nb::kw_only(), "source"_a.noconvert(), "is_max"_a, "plan"_a.none() = nb::none());
}

template <typename T>
void bind_backward(nb::module_& m) {
  m.def(
      "spmm_extreme_backward",
      [](Vector<const int64_t> t_indptr, Vector<const int32_t> t_indices,
         Matrix<const int32_t> source, Matrix<const T> grad, Matrix<T> out, bool accumulate,
         const Plan* plan) {
        const CsrView transpose = csr_view(t_indptr, t_indices);
        check_has_rows("the edges read from no rows", t_indices.shape(0), grad.shape(0));
        check_same_shape("source", source, grad);
        check_equal("out has the wrong number of rows", out.shape(0), t_indptr.shape(0) - 1);
        check_equal("out has the wrong width", out.shape(1), grad.shape(1));
        const PlanView view = plan_view(plan, transpose);
        const nb::gil_scoped_release unlocked;
        spmm_extreme_backward(transpose, view, source.data(), grad.data(),
                              static_cast<int64_t>(grad.shape(0)),
                              static_cast<int64_t>(grad.shape(1)), accumulate, out.data());
      },
      "t_indptr"_a.noconvert(), "t_indices"_a.noconvert(), "source"_a.noconvert(),
      "grad"_a.noconvert(), nb::kw_only(), "out"_a.noconvert(), "accumulate"_a,
      "plan"_a.none() = nb::none());
}

}  // namespace

void bind_extreme(nb::module_& m) {
  bind_forward<float>(m);
  bind_forward<double>(m);
  bind_backward<float>(m);
  bind_backward<double>(m);
}

}  // namespace distgnn
