#include <nanobind/stl/optional.h>

#include <optional>

#include "bindings.h"
#include "norm.h"

namespace distgnn {
namespace {

using namespace nb::literals;
using std::int64_t;

template <typename T>
NormInput<T> norm_input(const Matrix<const T>& x) {
  return {x.data(), static_cast<int64_t>(x.shape(0)), static_cast<int64_t>(x.shape(1))};
}

template <typename Array>
void check_width(const char* what, const Array& values, std::size_t width) {
  check_equal((std::string(what) + " has the wrong length").c_str(), values.shape(0), width);
}

// What follows a norm. A struct, because its arguments are those of two functions.
template <typename T>
struct After {
  std::optional<Vector<const T>> bias;
  bool has_relu;
  std::optional<Vector<const int64_t>> row_key;
  std::uint64_t seed;
  double probability;

  Finish<T> finish(const Matrix<const T>& x) const {
    if (bias) check_width("bias", *bias, x.shape(1));
    if (row_key) check_width("row_key", *row_key, x.shape(0));
    check_probability(probability);
    return {nullptr, bias ? bias->data() : nullptr, has_relu, row_key ? row_key->data() : nullptr,
            make_mask_rule<T>(seed, probability)};
  }
};

template <typename T>
NormGradient<T> norm_gradient(const Matrix<const T>& x, const SomeRows<T>& grad,
                              const std::optional<SomeRows<T>>& activation, double scale) {
  check_same_shape("grad", grad, x);
  NormGradient<T> gradient{stored_rows<const T>("rows of grad", grad), {}, static_cast<T>(scale)};
  if (!activation) return gradient;
  check_same_shape("activation", *activation, x);
  gradient.activation = stored_rows<const T>("rows of activation", *activation);
  if (gradient.activation.is_narrow() != gradient.grad.is_narrow()) {
    throw nb::type_error("activation is of another type than grad");
  }
  return gradient;
}

// Whether there is a workspace; raises ValueError if it has the wrong length.
template <typename W>
bool has_workspace(const std::optional<Vector<W>>& workspace, int64_t needed) {
  if (!workspace) return false;
  check_width("workspace", *workspace, static_cast<std::size_t>(needed));
  return true;
}

template <typename T>
void bind_columns(nb::module_& m) {
  m.def(
      "column_moments",
      [](Matrix<const T> x, Vector<double> mean, Vector<double> deviation,
         std::optional<Vector<double>> workspace) {
        check_width("mean", mean, x.shape(1));
        check_width("deviation", deviation, x.shape(1));
        const NormInput<T> input = norm_input<T>(x);
        const int64_t needed = column_sums_workspace(input.num_rows, input.width);
        if (!has_workspace(workspace, needed)) return needed;
        const nb::gil_scoped_release unlocked;
        column_moments(input, workspace->data(), mean.data(), deviation.data());
        return needed;
      },
      "x"_a.noconvert(), "mean"_a.noconvert(), "deviation"_a.noconvert(), nb::kw_only(),
      "workspace"_a.noconvert().none(),
      "Without a workspace nothing is done; returns the number of values that it must have.");
  m.def(
      "normalise_columns",
      [](Matrix<const T> x, Vector<const T> mean, Vector<const T> scale, SomeOutRows<T> out,
         std::optional<Vector<const T>> bias, bool has_relu,
         std::optional<Vector<const int64_t>> row_key, std::uint64_t seed, double probability) {
        check_width("mean", mean, x.shape(1));
        check_width("scale", scale, x.shape(1));
        check_same_shape("out", out, x);
        const After<T> after{bias, has_relu, row_key, seed, probability};
        const Finish<T> finish = after.finish(x);
        const Stored<T> rows = stored_rows<T>("rows of out", out);
        const nb::gil_scoped_release unlocked;
        normalise_columns(norm_input<T>(x), mean.data(), scale.data(), finish, rows);
      },
      "x"_a.noconvert(), "mean"_a.noconvert(), "scale"_a.noconvert(), "out"_a.noconvert(),
      nb::kw_only(), "bias"_a.noconvert().none(), "has_relu"_a, "row_key"_a.noconvert().none(),
      "seed"_a, "probability"_a);
}

template <typename T>
void bind_columns_backward(nb::module_& m) {
  m.def(
      "column_gradient_sums",
      [](Matrix<const T> x, Vector<const T> mean, Vector<const T> rstd, SomeRows<T> grad,
         std::optional<SomeRows<T>> activation, Matrix<double> sums, double scale,
         std::optional<Vector<double>> workspace) {
        check_width("mean", mean, x.shape(1));
        check_width("rstd", rstd, x.shape(1));
        check_extents("sums", sums, 2, x.shape(1));
        const NormGradient<T> gradient = norm_gradient<T>(x, grad, activation, scale);
        const NormInput<T> input = norm_input<T>(x);
        const int64_t needed = column_sums_workspace(input.num_rows, input.width);
        if (!has_workspace(workspace, needed)) return needed;
        const nb::gil_scoped_release unlocked;
        column_gradient_sums(input, gradient, mean.data(), rstd.data(), workspace->data(),
                             sums.data());
        return needed;
      },
      "x"_a.noconvert(), "mean"_a.noconvert(), "rstd"_a.noconvert(), "grad"_a.noconvert(),
      "activation"_a.noconvert().none(), "sums"_a.noconvert(), nb::kw_only(), "scale"_a,
      "workspace"_a.noconvert().none(),
      "Without a workspace nothing is done; returns the number of values that it must have.");
  m.def(
      "columns_backward",
      [](Matrix<const T> x, Vector<const T> mean, Matrix<const T> factors, SomeRows<T> grad,
         std::optional<SomeRows<T>> activation, Matrix<T> out, std::size_t num_counted,
         double scale) {
        check_width("mean", mean, x.shape(1));
        check_extents("factors", factors, 3, x.shape(1));
        check_same_shape("out", out, x);
        if (num_counted > x.shape(0)) throw nb::value_error("more rows are counted than there are");
        const NormGradient<T> gradient = norm_gradient<T>(x, grad, activation, scale);
        const nb::gil_scoped_release unlocked;
        columns_backward(norm_input<T>(x), gradient, mean.data(), factors.data(),
                         static_cast<int64_t>(num_counted), out.data());
      },
      "x"_a.noconvert(), "mean"_a.noconvert(), "factors"_a.noconvert(), "grad"_a.noconvert(),
      "activation"_a.noconvert().none(), "out"_a.noconvert(), nb::kw_only(), "num_counted"_a,
      "scale"_a);
}

template <typename T>
void bind_rows_norm(nb::module_& m) {
  m.def(
      "normalise_rows",
      [](Matrix<const T> x, Vector<const T> weight, SomeOutRows<T> out, double eps,
         std::optional<Vector<const T>> bias, bool has_relu,
         std::optional<Vector<const int64_t>> row_key, std::uint64_t seed, double probability) {
        check_width("weight", weight, x.shape(1));
        check_same_shape("out", out, x);
        const After<T> after{bias, has_relu, row_key, seed, probability};
        const Finish<T> finish = after.finish(x);
        const Stored<T> rows = stored_rows<T>("rows of out", out);
        const nb::gil_scoped_release unlocked;
        normalise_rows(norm_input<T>(x), weight.data(), static_cast<T>(eps), finish, rows);
      },
      "x"_a.noconvert(), "weight"_a.noconvert(), "out"_a.noconvert(), nb::kw_only(), "eps"_a,
      "bias"_a.noconvert().none(), "has_relu"_a, "row_key"_a.noconvert().none(), "seed"_a,
      "probability"_a);
  m.def(
      "rows_backward",
      [](Matrix<const T> x, Vector<const T> weight, SomeRows<T> grad,
         std::optional<SomeRows<T>> activation, Matrix<T> out, Matrix<T> sums, double eps,
         double scale, std::optional<Vector<T>> workspace) {
        check_width("weight", weight, x.shape(1));
        check_same_shape("out", out, x);
        check_extents("sums", sums, 2, x.shape(1));
        const NormGradient<T> gradient = norm_gradient<T>(x, grad, activation, scale);
        const NormInput<T> input = norm_input<T>(x);
        const int64_t needed = column_sums_workspace(input.num_rows, input.width);
        if (!has_workspace(workspace, needed)) return needed;
        const nb::gil_scoped_release unlocked;
        rows_backward(input, gradient, weight.data(), static_cast<T>(eps), workspace->data(),
                      out.data(), sums.data());
        return needed;
      },
      "x"_a.noconvert(), "weight"_a.noconvert(), "grad"_a.noconvert(),
      "activation"_a.noconvert().none(), "out"_a.noconvert(), "sums"_a.noconvert(), nb::kw_only(),
      "eps"_a, "scale"_a, "workspace"_a.noconvert().none(),
      "Without a workspace nothing is done; returns the number of values that it must have.");
}

}  // namespace

void bind_norm(nb::module_& m) {
  bind_columns<float>(m);
  bind_columns<double>(m);
  bind_columns_backward<float>(m);
  bind_columns_backward<double>(m);
  bind_rows_norm<float>(m);
  bind_rows_norm<double>(m);
}

}  // namespace distgnn
