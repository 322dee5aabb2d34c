#include <nanobind/stl/optional.h>

#include <optional>

#include "attention.h"
#include "bindings.h"

namespace distgnn {
namespace {

using namespace nb::literals;
using std::int32_t;
using std::int64_t;

// Raises ValueError unless rows of x consist of equally wide heads.
template <typename A, typename B>
std::int64_t head_width(const A& x, const B& scores) {
  const std::size_t num_heads = scores.shape(1);
  if (num_heads == 0) throw nb::value_error("the scores have no heads, expected at least 1");
  const std::size_t width = extent(x, 1);
  check_equal("the width of x is no multiple of the heads: remainder", width % num_heads, 0);
  return static_cast<std::int64_t>(width / num_heads);
}

template <typename T>
AttentionState<T> state_of(const Matrix<T>& out, const Matrix<T>& maximum,
                           const Matrix<T>& denominator) {
  check_equal("maximum has the wrong number of rows", maximum.shape(0), out.shape(0));
  check_same_shape("denominator", denominator, maximum);
  return {out.data(), maximum.data(), denominator.data()};
}

template <typename T>
using SomeScores = std::optional<Matrix<const T>>;
using SomeKeys = std::optional<Vector<const int64_t>>;

// What edges have of their own; seed and probability are of the mask, if they have keys.
template <typename T>
AttentionEdges<T> edges_of(const SomeScores<T>& score, const SomeKeys& key, std::size_t num_edges,
                           std::size_t num_heads, std::uint64_t seed, double probability) {
  check_probability(probability);
  AttentionEdges<T> edges{nullptr, nullptr, make_mask_rule<T>(seed, probability)};
  if (score) {
    check_extents("edge_score", *score, num_edges, num_heads);
    edges.score = score->data();
  }
  if (key) {
    check_equal("edge_key has the wrong length", key->shape(0), num_edges);
    edges.key = key->data();
  }
  return edges;
}

template <typename X, typename T>
void bind_attend(nb::module_& m) {
  m.def(
      "attend",
      [](Vector<const int64_t> indptr, Vector<const int32_t> indices, Matrix<const T> source_score,
         Matrix<const T> target_score, Rows<X> x, SomeScores<T> edge_score, SomeKeys edge_key,
         Matrix<T> out, Matrix<T> maximum, Matrix<T> denominator, double slope, std::uint64_t seed,
         double probability, bool accumulate, const WalkOrder* walk) {
        const CsrView graph = csr_view(indptr, indices);
        const int64_t width = head_width(x, source_score);
        check_has_rows("the edges read from no rows", indices.shape(0), x.shape(0));
        check_equal("source_score has the wrong number of rows", source_score.shape(0),
                    x.shape(0));
        check_extents("target_score", target_score, indptr.shape(0) - 1, source_score.shape(1));
        check_extents("out", out, indptr.shape(0) - 1, x.shape(1));
        check_equal("maximum has the wrong width", maximum.shape(1), source_score.shape(1));
        const AttentionState<T> state = state_of(out, maximum, denominator);
        const AttentionScores<T> scores{source_score.data(), target_score.data(),
                                        static_cast<int64_t>(source_score.shape(1)),
                                        static_cast<T>(slope)};
        const AttentionEdges<T> edges = edges_of<T>(
            edge_score, edge_key, indices.shape(0), source_score.shape(1), seed, probability);
        const WalkOrderView view = walk_view(walk, graph);
        const nb::gil_scoped_release unlocked;
        attend(graph, view, scores, edges, rows_of<X>(x), width, accumulate, state);
      },
      "indptr"_a.noconvert(), "indices"_a.noconvert(), "source_score"_a.noconvert(),
      "target_score"_a.noconvert(), "x"_a.noconvert(), nb::kw_only(),
      "edge_score"_a.noconvert().none(), "edge_key"_a.noconvert().none(), "out"_a.noconvert(),
      "maximum"_a.noconvert(), "denominator"_a.noconvert(), "slope"_a, "seed"_a, "probability"_a,
      "accumulate"_a, "walk"_a.none() = nb::none());
}

template <typename T>
void bind_merge(nb::module_& m) {
  m.def(
      "merge_attention",
      [](Matrix<const T> received, Vector<const int32_t> rows, Matrix<T> out, Matrix<T> maximum,
         Matrix<T> denominator) {
        const int64_t width = head_width(out, maximum);
        check_has_rows("the rows merged go to no rows", rows.shape(0), out.shape(0));
        check_equal("rows has the wrong length", rows.shape(0), received.shape(0));
        check_equal("received has the wrong width", received.shape(1),
                    out.shape(1) + maximum.shape(1));
        const AttentionState<T> state = state_of(out, maximum, denominator);
        const nb::gil_scoped_release unlocked;
        merge_attention(received.data(), rows.data(), static_cast<int64_t>(rows.shape(0)),
                        static_cast<int64_t>(maximum.shape(1)), width, state);
      },
      "received"_a.noconvert(), "rows"_a.noconvert(), nb::kw_only(), "out"_a.noconvert(),
      "maximum"_a.noconvert(), "denominator"_a.noconvert());
}

template <typename T>
void bind_finish(nb::module_& m) {
  m.def(
      "finish_attention",
      [](Matrix<T> out, Matrix<T> maximum, Matrix<T> denominator, SomeOutRows<T> result,
         std::optional<Vector<const T>> bias, bool has_relu, SomeKeys row_key, std::uint64_t seed,
         double probability) {
        const int64_t width = head_width(out, maximum);
        const AttentionState<T> state = state_of(out, maximum, denominator);
        check_same_shape("result", result, out);
        if (bias) check_equal("bias has the wrong length", bias->shape(0), out.shape(1));
        if (row_key) check_equal("row_key has the wrong length", row_key->shape(0), out.shape(0));
        check_probability(probability);
        const Finish<T> finish{nullptr, bias ? bias->data() : nullptr, has_relu,
                               row_key ? row_key->data() : nullptr,
                               make_mask_rule<T>(seed, probability)};
        const Stored<T> stored = stored_rows<T>("result", result);
        const nb::gil_scoped_release unlocked;
        finish_attention(static_cast<int64_t>(out.shape(0)),
                         static_cast<int64_t>(maximum.shape(1)), width, state, finish, stored);
      },
      "out"_a.noconvert(), "maximum"_a.noconvert(), "denominator"_a.noconvert(), nb::kw_only(),
      "result"_a.noconvert(), "bias"_a.noconvert().none(), "has_relu"_a,
      "row_key"_a.noconvert().none(), "seed"_a, "probability"_a);
}

template <typename X, typename T>
void bind_delta(nb::module_& m) {
  m.def(
      "attention_delta",
      [](Rows<X> grad, Rows<X> result, Matrix<T> out, std::optional<Vector<const T>> bias,
         double scale) {
        const int64_t width = head_width(grad, out);
        check_same_shape("result", result, grad);
        check_equal("out has the wrong number of rows", out.shape(0), grad.shape(0));
        if (bias) check_equal("bias has the wrong length", bias->shape(0), grad.shape(1));
        const nb::gil_scoped_release unlocked;
        attention_delta(static_cast<int64_t>(out.shape(0)), static_cast<int64_t>(out.shape(1)),
                        width, rows_of<X>(grad), rows_of<X>(result),
                        bias ? bias->data() : static_cast<const T*>(nullptr),
                        static_cast<T>(scale), out.data());
      },
      "grad"_a.noconvert(), "result"_a.noconvert(), "out"_a.noconvert(), nb::kw_only(),
      "bias"_a.noconvert().none(), "scale"_a);
}

template <typename T>
void bind_backward(nb::module_& m) {
  m.def(
      "attend_backward",
      [](Vector<const int64_t> t_indptr, Vector<const int32_t> t_indices,
         Vector<const int64_t> t_edge, Matrix<const T> source_score, Matrix<const T> target_score,
         Matrix<const T> log_sum, SomeRows<T> x, SomeRows<T> grad, Matrix<const T> delta,
         SomeOutRows<T> grad_x, Matrix<T> grad_source, Matrix<T> edge_grad,
         SomeScores<T> edge_score, SomeKeys edge_key, double slope, std::uint64_t seed,
         double probability, bool accumulate, const WalkOrder* walk) {
        const CsrView transpose = csr_view(t_indptr, t_indices);
        const int64_t width = head_width(x, source_score);
        check_has_rows("the edges read from no rows", t_indices.shape(0), extent(grad, 0));
        check_equal("t_edge has the wrong length", t_edge.shape(0), t_indices.shape(0));
        check_equal("x has the wrong number of rows", extent(x, 0), t_indptr.shape(0) - 1);
        check_equal("source_score has the wrong number of rows", source_score.shape(0),
                    extent(x, 0));
        check_extents("target_score", target_score, extent(grad, 0), source_score.shape(1));
        check_same_shape("log_sum", log_sum, target_score);
        check_same_shape("delta", delta, target_score);
        check_equal("grad has the wrong width", extent(grad, 1), extent(x, 1));
        check_same_shape("grad_x", grad_x, x);
        check_same_shape("grad_source", grad_source, source_score);
        check_extents("edge_grad", edge_grad, t_indices.shape(0), source_score.shape(1));
        const AttentionTargets<T> targets{target_score.data(), log_sum.data(), delta.data(),
                                          stored_rows<const T>("grad", grad)};
        const AttentionGradients<T> gradients{stored_rows<T>("grad_x", grad_x),
                                              grad_source.data(), edge_grad.data()};
        const Stored<const T> stored = stored_rows<const T>("x", x);
        const AttentionEdges<T> edges = edges_of<T>(
            edge_score, edge_key, t_indices.shape(0), source_score.shape(1), seed, probability);
        const WalkOrderView view = walk_view(walk, transpose);
        const nb::gil_scoped_release unlocked;
        attend_backward(transpose, view, t_edge.data(), source_score.data(),
                        static_cast<T>(slope), edges, targets, stored,
                        static_cast<int64_t>(source_score.shape(1)), width, accumulate, gradients);
      },
      "t_indptr"_a.noconvert(), "t_indices"_a.noconvert(), "t_edge"_a.noconvert(),
      "source_score"_a.noconvert(), "target_score"_a.noconvert(), nb::kw_only(),
      "log_sum"_a.noconvert(), "x"_a.noconvert(), "grad"_a.noconvert(), "delta"_a.noconvert(),
      "grad_x"_a.noconvert(), "grad_source"_a.noconvert(), "edge_grad"_a.noconvert(),
      "edge_score"_a.noconvert().none(), "edge_key"_a.noconvert().none(), "slope"_a, "seed"_a,
      "probability"_a, "accumulate"_a, "walk"_a.none() = nb::none());
}

template <typename T>
void bind_edge_sum(nb::module_& m) {
  m.def(
      "edge_sum",
      [](Vector<const int64_t> indptr, Matrix<const T> edge_value, Matrix<T> out,
         bool accumulate) {
        if (indptr.shape(0) == 0) {
          throw nb::value_error("indptr is empty, expected one more than rows");
        }
        const std::size_t num_rows = indptr.shape(0) - 1;
        check_equal("edge_value has the wrong number of rows", edge_value.shape(0),
                    static_cast<std::size_t>(indptr.data()[num_rows]));
        check_extents("out", out, num_rows, edge_value.shape(1));
        const nb::gil_scoped_release unlocked;
        edge_sum(indptr.data(), static_cast<int64_t>(num_rows), edge_value.data(),
                 static_cast<int64_t>(out.shape(1)), accumulate, out.data());
      },
      "indptr"_a.noconvert(), "edge_value"_a.noconvert(), "out"_a.noconvert(), nb::kw_only(),
      "accumulate"_a);
}

}  // namespace

void bind_attention(nb::module_& m) {
  bind_attend<float, float>(m);
  bind_attend<double, double>(m);
  bind_attend<Bf16, float>(m);
  bind_merge<float>(m);
  bind_merge<double>(m);
  bind_finish<float>(m);
  bind_finish<double>(m);
  bind_delta<float, float>(m);
  bind_delta<double, double>(m);
  bind_delta<Bf16, float>(m);
  bind_backward<float>(m);
  bind_backward<double>(m);
  bind_edge_sum<float>(m);
  bind_edge_sum<double>(m);
}

}  // namespace distgnn
