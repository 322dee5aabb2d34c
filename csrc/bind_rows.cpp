#include "bindings.h"
#include "rows.h"

namespace distgnn {
namespace {

using namespace nb::literals;
using std::int32_t;
using std::int64_t;

template <typename T>
void bind_gather(nb::module_& m) {
  m.def(
      "gather_rows",
      [](Rows<T> x, Vector<const int32_t> rows, OutRows<T> out) {
        check_has_rows("the rows read come from no rows", rows.shape(0), x.shape(0));
        check_extents("out", out, rows.shape(0), x.shape(1));
        const nb::gil_scoped_release unlocked;
        gather_rows(rows_of<T>(x), static_cast<int64_t>(x.shape(1)), rows.data(),
                    static_cast<int64_t>(rows.shape(0)), out_rows_of<T>(out));
      },
      "x"_a.noconvert(), "rows"_a.noconvert(), "out"_a.noconvert());
}

template <typename X, typename T>
void bind_scatter_add(nb::module_& m) {
  m.def(
      "scatter_add_rows",
      [](Rows<X> x, Vector<const int32_t> rows, Matrix<T> out) {
        check_has_rows("the rows added go to no rows", rows.shape(0), out.shape(0));
        check_equal("rows has the wrong length", rows.shape(0), x.shape(0));
        check_equal("out has the wrong width", out.shape(1), x.shape(1));
        const nb::gil_scoped_release unlocked;
        scatter_add_rows(rows_of<X>(x), static_cast<int64_t>(x.shape(1)), rows.data(),
                         static_cast<int64_t>(rows.shape(0)), out.data());
      },
      "x"_a.noconvert(), "rows"_a.noconvert(), "out"_a.noconvert());
}

template <typename X, typename Y, typename T>
void bind_scale(nb::module_& m) {
  m.def(
      "scale_rows",
      [](Rows<X> x, Vector<const T> factor, OutRows<Y> out) {
        check_equal("factor has the wrong length", factor.shape(0), x.shape(0));
        check_same_shape("out", out, x);
        const nb::gil_scoped_release unlocked;
        scale_rows(rows_of<X>(x), static_cast<int64_t>(x.shape(0)),
                   static_cast<int64_t>(x.shape(1)), factor.data(), out_rows_of<Y>(out));
      },
      "x"_a.noconvert(), "factor"_a.noconvert(), "out"_a.noconvert());
}

template <typename X, typename T>
void bind_blend(nb::module_& m) {
  m.def(
      "blend_rows",
      [](Rows<X> x, Vector<const int32_t> rows, OutRows<X> out, double weight) {
        check_has_rows("the rows blended go to no rows", rows.shape(0), out.shape(0));
        check_equal("rows has the wrong length", rows.shape(0), x.shape(0));
        check_equal("out has the wrong width", out.shape(1), x.shape(1));
        const nb::gil_scoped_release unlocked;
        blend_rows(rows_of<X>(x), static_cast<int64_t>(x.shape(1)), rows.data(),
                   static_cast<int64_t>(rows.shape(0)), static_cast<T>(weight),
                   out_rows_of<X>(out));
      },
      "x"_a.noconvert(), "rows"_a.noconvert(), "out"_a.noconvert(), "weight"_a);
}

}  // namespace

void bind_rows(nb::module_& m) {
  bind_gather<float>(m);
  bind_gather<double>(m);
  bind_gather<Bf16>(m);
  bind_scatter_add<float, float>(m);
  bind_scatter_add<double, double>(m);
  bind_scatter_add<Bf16, float>(m);
  bind_scale<float, float, float>(m);
  bind_scale<double, double, double>(m);
  bind_scale<Bf16, Bf16, float>(m);
  bind_scale<float, Bf16, float>(m);
  bind_blend<float, float>(m);
  bind_blend<double, double>(m);
  bind_blend<Bf16, float>(m);
}

}  // namespace distgnn
