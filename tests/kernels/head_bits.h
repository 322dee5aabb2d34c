// The part of all_bits.cpp that has heads: attention and its backward, weighted sums, dot products.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "attention.h"
#include "finish.h"
#include "sddmm.h"
#include "spmm_heads.h"
#include "stored.h"
#include "walk_order.h"

// Calls print(name, width, values) for every output; stored(rows) makes rows of X what kernels
// take; next_random() draws a number. What is averaged, the result and their gradients are stored
// as X.
template <typename T, typename X, typename Print, typename View, typename Random>
void run_heads(std::int64_t num_heads, std::int64_t width, const Print& print, const View& stored,
               const Random& next_random) {
  constexpr std::int64_t kHeadRows = 300, kHeadEdges = 3000;
  std::vector<std::int64_t> indptr(kHeadRows + 1), edge(kHeadEdges), key(kHeadRows);
  std::vector<std::int32_t> indices(kHeadEdges);
  for (std::int64_t i = 0; i <= kHeadRows; ++i) indptr[i] = i * kHeadEdges / kHeadRows;
  for (auto& source : indices) source = static_cast<std::int32_t>(next_random() % kHeadRows);
  for (std::int64_t k = 0; k < kHeadEdges; ++k) edge[k] = kHeadEdges - 1 - k;
  for (auto& k : key) k = static_cast<std::int64_t>(next_random());
  const auto random = [&](std::int64_t columns) {
    std::vector<T> values(kHeadRows * columns);
    for (auto& value : values) value = static_cast<T>(next_random() % 1000) / 100 - 5;
    return values;
  };
  const auto narrowed = [&](const std::vector<T>& values) {
    std::vector<X> rows(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) distgnn::store(values[i], &rows[i]);
    return rows;
  };
  const std::int64_t columns = num_heads * width;
  const std::vector<T> bias = random(columns);
  std::vector<X> x = narrowed(random(columns)), grad = narrowed(random(columns));
  const std::vector<T> source = random(num_heads), target = random(num_heads);
  std::vector<T> out = random(columns), maximum = random(num_heads), denominator = random(num_heads);
  for (auto& value : denominator) value = std::abs(value);
  const distgnn::CsrView graph{indptr.data(), indices.data(), kHeadRows};
  const distgnn::WalkOrder made = distgnn::make_walk_order(graph, kHeadRows);
  const distgnn::WalkOrderView walk = distgnn::view_of(made);

  const distgnn::AttentionState<T> state{out.data(), maximum.data(), denominator.data()};
  const distgnn::AttentionScores<T> scores{source.data(), target.data(), num_heads, T(0.2)};
  distgnn::attend(graph, walk, scores, {}, x.data(), width, true, state);
  print("attend", width, out);
  const std::vector<T> received = random(columns + num_heads);
  distgnn::merge_attention(received.data(), indices.data(), kHeadRows, num_heads, width, state);
  print("merge", width, out);
  for (auto& value : denominator) value = std::abs(value);
  const distgnn::Finish<T> finish{nullptr, bias.data(), true, key.data(),
                                  distgnn::make_mask_rule<T>(7, 0.4)};
  std::vector<X> result(out.size());
  distgnn::finish_attention(kHeadRows, num_heads, width, state, finish, stored(result.data()));
  print("finish", width, result);
  print("log_sum", width, maximum);
  std::vector<T> delta(maximum.size());
  distgnn::attention_delta(kHeadRows, num_heads, width, grad.data(), result.data(), bias.data(),
                           T(0.6), delta.data());
  print("delta", width, delta);

  std::vector<X> grad_x(x.size());
  std::vector<T> grad_source(source.size()), edge_grad(kHeadEdges * num_heads);
  const auto rows = stored(x.data()).read();
  const distgnn::AttentionTargets<T> targets{target.data(), maximum.data(), delta.data(),
                                             stored(grad.data()).read()};
  const distgnn::AttentionGradients<T> gradients{stored(grad_x.data()), grad_source.data(),
                                                 edge_grad.data()};
  distgnn::attend_backward(graph, walk, edge.data(), source.data(), T(0.2), {}, targets, rows,
                           num_heads, width, false, gradients);
  print("grad_x", width, grad_x);
  print("grad_source", width, grad_source);
  print("edge_grad", width, edge_grad);
  distgnn::edge_sum(indptr.data(), kHeadRows, edge_grad.data(), num_heads, false,
                    grad_source.data());
  print("edge_sum", width, grad_source);

  std::vector<T> own(edge_grad.size());
  for (auto& value : own) value = static_cast<T>(next_random() % 1000) / 100 - 5;
  const distgnn::AttentionEdges<T> edges{own.data(), edge.data(),
                                         distgnn::make_mask_rule<T>(5, 0.3)};
  distgnn::attend(graph, walk, scores, edges, x.data(), width, false, state);
  print("attend_own", width, out);
  const distgnn::Stored<T> in_out{out.data(), nullptr};
  distgnn::finish_attention(kHeadRows, num_heads, width, state, {}, in_out);
  const distgnn::AttentionGradients<T> in_place{stored(grad_x.data()), grad_source.data(),
                                                own.data()};
  distgnn::attend_backward(graph, walk, edge.data(), source.data(), T(0.2), edges, targets, rows,
                           num_heads, width, true, in_place);
  print("grad_x_own", width, grad_x);
  print("grad_source_own", width, grad_source);
  print("edge_grad_own", width, own);

  const std::vector<T> wide = random(columns), other = random(columns);
  distgnn::sddmm_dot(graph, walk, wide.data(), other.data(), num_heads, width, edge_grad.data());
  print("sddmm_dot", width, edge_grad);
  distgnn::sddmm_leaky(graph, walk, wide.data(), other.data(), bias.data(), T(0.2), num_heads,
                       width, edge_grad.data());
  print("sddmm_leaky", width, edge_grad);
  distgnn::sddmm_leaky_backward(graph, walk, edge.data(), edge_grad.data(), wide.data(),
                                other.data(), T(0.2), num_heads, width, out.data());
  print("sddmm_leaky_backward", width, out);
  distgnn::spmm_heads(graph, walk, edge_grad.data(), num_heads, wide.data(), width, false,
                      out.data());
  print("spmm_heads", width, out);
  distgnn::sddmm_add(graph, walk, source.data(), target.data(), num_heads, edge_grad.data());
  print("sddmm_add", width, edge_grad);
}
