#include "bindings.h"
#include "dropout.h"

namespace distgnn {
namespace {

using namespace nb::literals;
using std::int32_t;
using std::int64_t;
using std::uint64_t;

template <typename X, typename Y>
void bind_dense(nb::module_& m) {
  m.def(
      "dropout",
      [](Rows<X> x, Vector<const int64_t> row_key, OutRows<Y> out, uint64_t seed,
         double probability) {
        check_equal("row_key has the wrong length", row_key.shape(0), x.shape(0));
        check_same_shape("out", out, x);
        check_probability(probability);
        const nb::gil_scoped_release unlocked;
        dropout(rows_of<X>(x), row_key.data(), static_cast<int64_t>(x.shape(0)),
                static_cast<int64_t>(x.shape(1)), seed, probability, out_rows_of<Y>(out));
      },
      "x"_a.noconvert(), "row_key"_a.noconvert(), "out"_a.noconvert(), nb::kw_only(), "seed"_a,
      "probability"_a);
}

template <typename T>
void bind_values(nb::module_& m) {
  m.def(
      "dropout_values",
      [](Vector<const T> values, Vector<const int64_t> row_key, Vector<const int32_t> column,
         Vector<T> out, uint64_t seed, double probability) {
        check_equal("row_key has the wrong length", row_key.shape(0), values.shape(0));
        check_equal("column has the wrong length", column.shape(0), values.shape(0));
        check_equal("out has the wrong length", out.shape(0), values.shape(0));
        check_probability(probability);
        const nb::gil_scoped_release unlocked;
        dropout_values(values.data(), row_key.data(), column.data(),
                       static_cast<int64_t>(values.shape(0)), seed, probability, out.data());
      },
      "values"_a.noconvert(), "row_key"_a.noconvert(), "column"_a.noconvert(),
      "out"_a.noconvert(), nb::kw_only(), "seed"_a, "probability"_a);
}

}  // namespace

void bind_dropout(nb::module_& m) {
  bind_dense<float, float>(m);
  bind_dense<double, double>(m);
  bind_dense<Bf16, Bf16>(m);
  bind_dense<float, Bf16>(m);
  bind_values<float>(m);
  bind_values<double>(m);
}

}  // namespace distgnn
