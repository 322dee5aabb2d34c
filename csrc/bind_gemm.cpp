#include <omp.h>

#include <nanobind/stl/optional.h>

#include <optional>

#include "bindings.h"
#include "gemm.h"

namespace distgnn {
namespace {

using namespace nb::literals;
using std::int32_t;
using std::int64_t;

using Picked = std::optional<Vector<const int32_t>>;
template <typename T>
using Some = std::optional<Vector<const T>>;

// The number of rows that are multiplied: all of x, or those picked.
template <typename T>
std::size_t num_multiplied(const SomeRows<T>& x, const Picked& rows) {
  if (!rows) return extent(x, 0);
  check_has_rows("the rows picked come from no rows", rows->shape(0), extent(x, 0));
  return rows->shape(0);
}

template <typename T>
bool is_narrow(const std::optional<SomeRows<T>>& x) {
  return x && stored_rows<const T>("rows", *x).is_narrow();
}

template <typename T>
void add_factor(Product<T>& product, const std::optional<SomeRows<T>>& some_x, const Picked& rows,
                const Some<T>& some_panels) {
  if (!some_x || !some_panels) return;
  const SomeRows<T>& x = *some_x;
  const Vector<const T>& panels = *some_panels;
  const auto depth = static_cast<int64_t>(extent(x, 1));
  check_equal("a factor has the wrong number of rows", num_multiplied<T>(x, rows),
              static_cast<std::size_t>(product.num_rows));
  const int64_t size = panels_size<T>(depth, product.width, product.is_paired);
  check_equal("panels has the wrong length", panels.shape(0), static_cast<std::size_t>(size));
  product.factors[product.num_factors++] = {stored_rows<const T>("rows", x),
                                            rows ? rows->data() : nullptr, depth, panels.data(),
                                            false};
}

// Marks the factors whose rows are those of the product, and refuses those that would be read after
// they were written.
template <typename T>
void mark_out(Product<T>& product, std::size_t width) {
  for (int f = 0; f < product.num_factors && product.num_rows > 0; ++f) {
    Factor<T>& factor = product.factors[f];
    factor.is_out = factor.x.wide == product.out.wide && factor.x.narrow == product.out.narrow;
    if (!factor.is_out) continue;
    check_equal("out is a factor of another width", static_cast<std::size_t>(factor.depth), width);
    if (factor.rows != nullptr || product.rows != nullptr || product.accumulate) {
      throw nb::value_error("out is a factor, whose rows must neither be picked nor added to");
    }
  }
}

template <typename T>
void bind_pack(nb::module_& m) {
  m.def(
      "pack_panels",
      [](Matrix<const T> matrix, std::optional<Vector<T>> panels, bool is_transposed,
         bool is_paired) {
        const auto rows = static_cast<int64_t>(matrix.shape(0));
        const auto columns = static_cast<int64_t>(matrix.shape(1));
        const int64_t depth = is_transposed ? columns : rows;
        const int64_t width = is_transposed ? rows : columns;
        const int64_t size = panels_size<T>(depth, width, is_paired);
        if (!panels) return size;
        check_equal("panels has the wrong length", panels->shape(0),
                    static_cast<std::size_t>(size));
        const nb::gil_scoped_release unlocked;
        pack_panels(matrix.data(), depth, width, is_transposed ? 1 : columns,
                    is_transposed ? columns : 1, is_paired, panels->data());
        return size;
      },
      "matrix"_a.noconvert(), "panels"_a.noconvert().none(), nb::kw_only(), "is_transposed"_a,
      "is_paired"_a,
      "Returns the number of values that panels must have; without them nothing is done.");
}

template <typename T>
void bind_multiply(nb::module_& m) {
  m.def(
      "multiply",
      [](std::optional<SomeRows<T>> x, Picked rows, Some<T> panels, std::optional<SomeRows<T>> x2,
         Picked rows2, Some<T> panels2, SomeOutRows<T> out, Picked out_rows, bool accumulate,
         Some<T> row_factor, Some<T> bias, bool has_relu,
         std::optional<Vector<const int64_t>> row_key, std::uint64_t seed, double probability,
         std::optional<Vector<T>> workspace) {
        Product<T> product{};
        const std::size_t num_out = out_rows ? out_rows->shape(0) : extent(out, 0);
        const std::size_t num_rows = x ? num_multiplied<T>(*x, rows) : num_out;
        product.num_rows = static_cast<int64_t>(num_rows);
        product.width = static_cast<int64_t>(extent(out, 1));
        product.is_paired = is_narrow<T>(x) && (!x2 || is_narrow<T>(x2));
        add_factor<T>(product, x, rows, panels);
        add_factor<T>(product, x2, rows2, panels2);
        if (product.num_factors == 0 && !accumulate) {
          throw nb::value_error("without factors there is nothing but what is added to");
        }
        check_equal("out has the wrong number of rows", num_out, num_rows);
        if (out_rows) check_has_rows("the rows go to no rows", num_rows, extent(out, 0));
        if (row_factor) {
          check_equal("row_factor has the wrong length", row_factor->shape(0), num_rows);
        }
        if (bias) check_equal("bias has the wrong length", bias->shape(0), extent(out, 1));
        if (row_key) check_equal("row_key has the wrong length", row_key->shape(0), num_rows);
        check_probability(probability);
        product.accumulate = accumulate;
        product.finish = {row_factor ? row_factor->data() : nullptr, bias ? bias->data() : nullptr,
                          has_relu, row_key ? row_key->data() : nullptr,
                          make_mask_rule<T>(seed, probability)};
        product.rows = out_rows ? out_rows->data() : nullptr;
        product.out = stored_rows<T>("rows of out", out);
        mark_out(product, extent(out, 1));
        const int64_t needed = multiply_workspace(product, omp_get_max_threads());
        if (!workspace && needed > 0) return needed;
        if (workspace) {
          check_equal("workspace has the wrong length", workspace->shape(0),
                      static_cast<std::size_t>(needed));
        }
        const nb::gil_scoped_release unlocked;
        multiply(product, workspace ? workspace->data() : nullptr);
        return needed;
      },
      "x"_a.noconvert().none(), "rows"_a.noconvert().none(), "panels"_a.noconvert().none(),
      "x2"_a.noconvert().none(), "rows2"_a.noconvert().none(), "panels2"_a.noconvert().none(),
      "out"_a.noconvert(), nb::kw_only(), "out_rows"_a.noconvert().none(), "accumulate"_a,
      "row_factor"_a.noconvert().none(), "bias"_a.noconvert().none(), "has_relu"_a,
      "row_key"_a.noconvert().none(), "seed"_a, "probability"_a,
      "workspace"_a.noconvert().none(),
      "Returns the number of values that a workspace must have; without one where it is not 0, "
      "nothing is done.");
}

template <typename T>
void add_factor(Gradient<T>& gradient, const std::optional<SomeRows<T>>& some_x, const Picked& rows,
                const std::optional<Matrix<T>>& some_out) {
  if (!some_x || !some_out) return;
  const SomeRows<T>& x = *some_x;
  const Matrix<T>& out = *some_out;
  check_equal("a factor has the wrong number of rows", num_multiplied<T>(x, rows),
              static_cast<std::size_t>(gradient.num_rows));
  check_extents("a gradient", out, static_cast<std::size_t>(gradient.width), extent(x, 1));
  gradient.factors[gradient.num_factors++] = {stored_rows<const T>("rows", x),
                                              rows ? rows->data() : nullptr,
                                              static_cast<int64_t>(extent(x, 1)), out.data()};
}

template <typename T>
void bind_gradient(nb::module_& m) {
  m.def(
      "multiply_transposed",
      [](std::optional<SomeRows<T>> x, Picked rows, std::optional<Matrix<T>> out,
         std::optional<SomeRows<T>> x2, Picked rows2, std::optional<Matrix<T>> out2,
         SomeOutRows<T> grad, std::optional<SomeRows<T>> activation, double scale,
         std::optional<Vector<T>> bias, std::optional<Vector<T>> workspace) {
        Gradient<T> gradient{};
        gradient.num_rows = static_cast<int64_t>(extent(grad, 0));
        gradient.width = static_cast<int64_t>(extent(grad, 1));
        add_factor<T>(gradient, x, rows, out);
        add_factor<T>(gradient, x2, rows2, out2);
        gradient.grad = stored_rows<T>("rows of grad", grad);
        if (activation) {
          check_same_shape("activation", *activation, grad);
          gradient.activation = stored_rows<const T>("rows of activation", *activation);
          if (gradient.activation.is_narrow() != gradient.grad.is_narrow()) {
            throw nb::type_error("activation is of another type than grad");
          }
        }
        if (bias) check_equal("bias has the wrong length", bias->shape(0), extent(grad, 1));
        gradient.scale = static_cast<T>(scale);
        gradient.bias_gradient = bias ? bias->data() : nullptr;
        const int64_t needed = gradient_workspace(gradient, omp_get_max_threads());
        if (!workspace) return needed;
        check_equal("workspace has the wrong length", workspace->shape(0),
                    static_cast<std::size_t>(needed));
        const nb::gil_scoped_release unlocked;
        multiply_transposed(gradient, workspace->data());
        return needed;
      },
      "x"_a.noconvert().none(), "rows"_a.noconvert().none(), "out"_a.noconvert().none(),
      "x2"_a.noconvert().none(), "rows2"_a.noconvert().none(), "out2"_a.noconvert().none(),
      "grad"_a.noconvert(), nb::kw_only(), "activation"_a.noconvert().none(), "scale"_a,
      "bias"_a.noconvert().none(), "workspace"_a.noconvert().none(),
      "Without a workspace nothing is done; returns the number of values that it must have.");
}

}  // namespace

void bind_gemm(nb::module_& m) {
  bind_pack<float>(m);
  bind_pack<double>(m);
  bind_multiply<float>(m);
  bind_multiply<double>(m);
  bind_gradient<float>(m);
  bind_gradient<double>(m);
}

}  // namespace distgnn
