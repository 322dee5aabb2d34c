#include "bindings.h"
#include "merge_max.h"
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
         Matrix<T> out, Matrix<int32_t> source, bool is_max, const WalkOrder* walk) {
        const CsrView graph = csr_view(indptr, indices);
        check_has_rows("the edges read from no rows", indices.shape(0), x.shape(0));
        check_extents("out", out, indptr.shape(0) - 1, x.shape(1));
        check_same_shape("source", source, out);
        const WalkOrderView view = walk_view(walk, graph);
        const nb::gil_scoped_release unlocked;
        spmm_extreme(graph, view, x.data(), static_cast<int64_t>(x.shape(0)),
                     static_cast<int64_t>(x.shape(1)), is_max, out.data(), source.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "x"_a.noconvert(), "out"_a.noconvert(),
      nb::kw_only(), "source"_a.noconvert(), "is_max"_a, "walk"_a.none() = nb::none());
}

template <typename T>
void bind_backward(nb::module_& m) {
  m.def(
      "spmm_extreme_backward",
      [](Vector<const int64_t> t_indptr, Vector<const int32_t> t_indices,
         Matrix<const int32_t> source, Matrix<const T> grad, Matrix<T> out, Vector<T> scratch,
         bool accumulate, int32_t first_source, const WalkOrder* walk) {
        const CsrView transpose = csr_view(t_indptr, t_indices);
        check_has_rows("the edges read from no rows", t_indices.shape(0), grad.shape(0));
        check_same_shape("source", source, grad);
        check_extents("out", out, t_indptr.shape(0) - 1, grad.shape(1));
        const auto width = static_cast<int64_t>(grad.shape(1));
        const int64_t needed =
            extreme_scratch(transpose, static_cast<int64_t>(grad.shape(0)), width);
        if (static_cast<int64_t>(scratch.shape(0)) < needed) {
          check_equal("scratch is too short", scratch.shape(0), static_cast<std::size_t>(needed));
        }
        const WalkOrderView view = walk_view(walk, transpose);
        const nb::gil_scoped_release unlocked;
        const ExtremeGrad<T> given{grad.data(), source.data(), first_source,
                                   static_cast<int64_t>(grad.shape(0))};
        spmm_extreme_backward(transpose, view, given, width, accumulate, scratch.data(),
                              out.data());
      },
      "t_indptr"_a.noconvert(), "t_indices"_a.noconvert(), "source"_a.noconvert(),
      "grad"_a.noconvert(), nb::kw_only(), "out"_a.noconvert(), "scratch"_a.noconvert(),
      "accumulate"_a, "first_source"_a = 0, "walk"_a.none() = nb::none());
}

template <typename T>
void bind_merge(nb::module_& m) {
  m.def(
      "merge_max",
      [](Matrix<T> out, Matrix<int32_t> source, Matrix<const T> other,
         Matrix<const int32_t> other_source, Vector<const int64_t> source_id,
         int32_t first_source) {
        check_same_shape("source", source, out);
        check_same_shape("other", other, out);
        check_same_shape("other_source", other_source, out);
        check_numbered("sources", source_id.shape(0));
        const Maxima<T> into{out.data(), source.data()};
        const FoundMaxima<T> found{other.data(), other_source.data()};
        const nb::gil_scoped_release unlocked;
        merge_max(into, found, static_cast<int64_t>(out.shape(0)),
                  static_cast<int64_t>(out.shape(1)), first_source, source_id.data());
      },
      "out"_a.noconvert(), "source"_a.noconvert(), "other"_a.noconvert(),
      "other_source"_a.noconvert(), nb::kw_only(), "source_id"_a.noconvert(), "first_source"_a);
}

template <typename T>
void bind_merge_received(nb::module_& m) {
  m.def(
      "merge_received_max",
      [](Matrix<T> out, Matrix<int32_t> source, Vector<const int32_t> rows,
         Matrix<const T> received, Matrix<const int64_t> received_id,
         Vector<const int64_t> source_id) {
        check_same_shape("source", source, out);
        check_equal("rows has the wrong length", rows.shape(0), received.shape(0));
        check_equal("received has the wrong width", received.shape(1), out.shape(1));
        check_same_shape("received_id", received_id, received);
        check_has_rows("the rows received go to no rows", rows.shape(0), out.shape(0));
        check_numbered("sources", source_id.shape(0));
        check_numbered("rows received", rows.shape(0));
        const Maxima<T> into{out.data(), source.data()};
        const ReceivedMaxima<T> arrived{rows.data(), received.data(), received_id.data(),
                                        static_cast<int64_t>(rows.shape(0))};
        const nb::gil_scoped_release unlocked;
        merge_received_max(into, arrived, static_cast<int64_t>(out.shape(1)), source_id.data());
      },
      "out"_a.noconvert(), "source"_a.noconvert(), "rows"_a.noconvert(), "received"_a.noconvert(),
      "received_id"_a.noconvert(), nb::kw_only(), "source_id"_a.noconvert());
}

}  // namespace

void bind_extreme(nb::module_& m) {
  m.def(
      "extreme_scratch",
      [](Vector<const int64_t> t_indptr, Vector<const int32_t> t_indices, int64_t num_rows,
         int64_t width) {
        return extreme_scratch(csr_view(t_indptr, t_indices), num_rows, width);
      },
      "t_indptr"_a.noconvert(), "t_indices"_a.noconvert(), "num_rows"_a, "width"_a);
  bind_forward<float>(m);
  bind_forward<double>(m);
  bind_backward<float>(m);
  bind_backward<double>(m);
  bind_merge<float>(m);
  bind_merge<double>(m);
  bind_merge_received<float>(m);
  bind_merge_received<double>(m);
}

}  // namespace distgnn
