// The part of all_bits.cpp that has heads: attention and its backward, weighted sums, dot products.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "attention.h"
#include "plan.h"
#include "sddmm.h"
#include "spmm_heads.h"

// Calls print(name, width, values) for every output; next_random() draws a number.
template <typename T, typename Print, typename Random>
void run_heads(std::int64_t num_heads, std::int64_t width, const Print& print,
               const Random& next_random) {
  constexpr std::int64_t kHeadRows = 300, kHeadEdges = 3000;
  std::vector<std::int64_t> indptr(kHeadRows + 1), edge(kHeadEdges);
  std::vector<std::int32_t> indices(kHeadEdges);
  for (std::int64_t i = 0; i <= kHeadRows; ++i) indptr[i] = i * kHeadEdges / kHeadRows;
  for (auto& source : indices) source = static_cast<std::int32_t>(next_random() % kHeadRows);
  for (std::int64_t k = 0; k < kHeadEdges; ++k) edge[k] = kHeadEdges - 1 - k;
  const auto random = [&](std::int64_t columns) {
    std::vector<T> values(kHeadRows * columns);
    for (auto& value : values) value = static_cast<T>(next_random() % 1000) / 100 - 5;
    return values;
  };
  const std::int64_t columns = num_heads * width;
  const std::vector<T> x = random(columns), grad = random(columns);
  const std::vector<T> source = random(num_heads), target = random(num_heads);
  std::vector<T> out = random(columns), maximum = random(num_heads), denominator = random(num_heads);
  for (auto& value : denominator) value = std::abs(value);
  const distgnn::CsrView graph{indptr.data(), indices.data(), kHeadRows};
  const distgnn::Plan made = distgnn::make_plan(graph, kHeadRows);
  const distgnn::PlanView plan = distgnn::view_of(made);

  const distgnn::AttentionState<T> state{out.data(), maximum.data(), denominator.data()};
  const distgnn::AttentionScores<T> scores{source.data(), target.data(), num_heads, T(0.2)};
  distgnn::attend(graph, plan, scores, {}, x.data(), width, true, state);
  print("attend", width, out);
  const std::vector<T> received = random(columns + 2 * num_heads);
  distgnn::merge_attention(received.data(), indices.data(), kHeadRows, num_heads, width, state);
  print("merge", width, out);
  for (auto& value : denominator) value = std::abs(value);
  distgnn::finish_attention(kHeadRows, num_heads, width, state);
  print("finish", width, out);
  print("log_sum", width, maximum);

  std::vector<T> grad_x(x.size()), grad_source(source.size()), edge_grad(kHeadEdges * num_heads);
  const distgnn::AttentionTargets<T> targets{target.data(), maximum.data(), denominator.data(),
                                             grad.data()};
  const distgnn::AttentionGradients<T> gradients{grad_x.data(), grad_source.data(),
                                                 edge_grad.data()};
  distgnn::attend_backward(graph, plan, edge.data(), source.data(), T(0.2), {}, targets, x.data(),
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
  distgnn::attend(graph, plan, scores, edges, x.data(), width, false, state);
  print("attend_own", width, out);
  distgnn::finish_attention(kHeadRows, num_heads, width, state);
  const distgnn::AttentionGradients<T> in_place{grad_x.data(), grad_source.data(), own.data()};
  distgnn::attend_backward(graph, plan, edge.data(), source.data(), T(0.2), edges, targets,
                           x.data(), num_heads, width, false, in_place);
  print("grad_x_own", width, grad_x);
  print("grad_source_own", width, grad_source);
  print("edge_grad_own", width, own);

  distgnn::sddmm_dot(graph, plan, x.data(), grad.data(), num_heads, width, edge_grad.data());
  print("sddmm_dot", width, edge_grad);
  distgnn::spmm_heads(graph, plan, edge_grad.data(), num_heads, x.data(), width, false, out.data());
  print("spmm_heads", width, out);
  distgnn::sddmm_add(graph, plan, source.data(), target.data(), num_heads, edge_grad.data());
  print("sddmm_add", width, edge_grad);
}
