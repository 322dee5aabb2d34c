#include <nanobind/stl/optional.h>

#include <optional>

#include "bindings.h"
#include "sddmm.h"
#include "spmm_heads.h"

namespace distgnn {
namespace {

using namespace nb::literals;
using std::int32_t;
using std::int64_t;

// The columns of a head, if rows of x consist of equally wide ones.
template <typename A>
int64_t head_width(const A& x, std::size_t num_heads) {
  if (num_heads == 0) throw nb::value_error("there are no heads, expected at least 1");
  check_equal("the width of x is no multiple of the heads: remainder", x.shape(1) % num_heads, 0);
  return static_cast<int64_t>(x.shape(1) / num_heads);
}

// What all have: rows x of the sources, and values of the edges.
template <typename A, typename B>
void check_edges(const Vector<const int32_t>& indices, const A& x, const char* name,
                 const B& edge_value) {
  check_has_rows("the edges read from no rows", indices.shape(0), x.shape(0));
  check_equal((std::string(name) + " has the wrong number of rows").c_str(), edge_value.shape(0),
              indices.shape(0));
}

// Rows x and y of both ends of the edges, with heads side by side.
template <typename T, typename A>
int64_t check_ends(const Vector<const int64_t>& indptr, const Vector<const int32_t>& indices,
                   const Matrix<const T>& x, const Matrix<const T>& y, const char* name,
                   const A& edge_value) {
  const int64_t width = head_width(x, edge_value.shape(1));
  check_edges(indices, x, name, edge_value);
  check_extents("y", y, indptr.shape(0) - 1, x.shape(1));
  return width;
}

template <typename T>
void bind_spmm_heads(nb::module_& m) {
  m.def(
      "spmm_heads",
      [](Vector<const int64_t> indptr, Vector<const int32_t> indices, Matrix<const T> weight,
         Matrix<const T> x, Matrix<T> out, bool accumulate, const WalkOrder* walk) {
        const CsrView graph = csr_view(indptr, indices);
        const int64_t width = head_width(x, weight.shape(1));
        check_edges(indices, x, "weight", weight);
        check_extents("out", out, indptr.shape(0) - 1, x.shape(1));
        const WalkOrderView view = walk_view(walk, graph);
        const nb::gil_scoped_release unlocked;
        spmm_heads(graph, view, weight.data(), static_cast<int64_t>(weight.shape(1)), x.data(),
                   width, accumulate, out.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "weight"_a.noconvert(), "x"_a.noconvert(),
      "out"_a.noconvert(), nb::kw_only(), "accumulate"_a, "walk"_a.none() = nb::none());
}

template <typename T>
void bind_sddmm(nb::module_& m) {
  m.def(
      "sddmm_dot",
      [](Vector<const int64_t> indptr, Vector<const int32_t> indices, Matrix<const T> x,
         Matrix<const T> y, Matrix<T> out, const WalkOrder* walk) {
        const CsrView graph = csr_view(indptr, indices);
        const int64_t width = check_ends<T>(indptr, indices, x, y, "out", out);
        const WalkOrderView view = walk_view(walk, graph);
        const nb::gil_scoped_release unlocked;
        sddmm_dot(graph, view, x.data(), y.data(), static_cast<int64_t>(out.shape(1)), width,
                  out.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "x"_a.noconvert(), "y"_a.noconvert(),
      "out"_a.noconvert(), nb::kw_only(), "walk"_a.none() = nb::none());
  m.def(
      "sddmm_add",
      [](Vector<const int64_t> indptr, Vector<const int32_t> indices, Matrix<const T> x,
         Matrix<const T> y, Matrix<T> out, const WalkOrder* walk) {
        const CsrView graph = csr_view(indptr, indices);
        check_edges(indices, x, "out", out);
        check_extents("y", y, indptr.shape(0) - 1, x.shape(1));
        check_equal("out has the wrong width", out.shape(1), x.shape(1));
        const WalkOrderView view = walk_view(walk, graph);
        const nb::gil_scoped_release unlocked;
        sddmm_add(graph, view, x.data(), y.data(), static_cast<int64_t>(out.shape(1)),
                  out.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "x"_a.noconvert(), "y"_a.noconvert(),
      "out"_a.noconvert(), nb::kw_only(), "walk"_a.none() = nb::none());
}

template <typename T>
void bind_sddmm_leaky(nb::module_& m) {
  m.def(
      "sddmm_leaky",
      [](Vector<const int64_t> indptr, Vector<const int32_t> indices, Matrix<const T> x,
         Matrix<const T> y, Vector<const T> factor, Matrix<T> out, double slope,
         const WalkOrder* walk) {
        const CsrView graph = csr_view(indptr, indices);
        const int64_t width = check_ends<T>(indptr, indices, x, y, "out", out);
        check_equal("factor has the wrong size", factor.shape(0), x.shape(1));
        const WalkOrderView view = walk_view(walk, graph);
        const nb::gil_scoped_release unlocked;
        sddmm_leaky(graph, view, x.data(), y.data(), factor.data(), static_cast<T>(slope),
                    static_cast<int64_t>(out.shape(1)), width, out.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "x"_a.noconvert(), "y"_a.noconvert(),
      "factor"_a.noconvert(), "out"_a.noconvert(), nb::kw_only(), "slope"_a,
      "walk"_a.none() = nb::none());
  m.def(
      "sddmm_leaky_backward",
      [](Vector<const int64_t> indptr, Vector<const int32_t> indices,
         std::optional<Vector<const int64_t>> edge, Matrix<const T> value, Matrix<const T> x,
         Matrix<const T> y, Matrix<T> out, double slope, const WalkOrder* walk) {
        const CsrView graph = csr_view(indptr, indices);
        const int64_t width = check_ends<T>(indptr, indices, x, y, "value", value);
        check_extents("out", out, indptr.shape(0) - 1, x.shape(1));
        if (edge) {
          check_equal("edge has the wrong size", edge->shape(0), indices.shape(0));
        }
        const WalkOrderView view = walk_view(walk, graph);
        const nb::gil_scoped_release unlocked;
        sddmm_leaky_backward(graph, view, edge ? edge->data() : nullptr, value.data(), x.data(),
                             y.data(), static_cast<T>(slope),
                             static_cast<int64_t>(value.shape(1)), width, out.data());
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "edge"_a.noconvert().none(),
      "value"_a.noconvert(), "x"_a.noconvert(), "y"_a.noconvert(), "out"_a.noconvert(),
      nb::kw_only(), "slope"_a, "walk"_a.none() = nb::none());
}

}  // namespace

void bind_heads(nb::module_& m) {
  bind_spmm_heads<float>(m);
  bind_spmm_heads<double>(m);
  bind_sddmm<float>(m);
  bind_sddmm<double>(m);
  bind_sddmm_leaky<float>(m);
  bind_sddmm_leaky<double>(m);
}

}  // namespace distgnn
