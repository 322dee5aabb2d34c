// Values per edge and head, from the rows of its source and its destination (SDDMM).
//
// Rows of x and y have num_heads * width columns, head by head; out is (num_edges, num_heads), in
// the order of the graph. T is float or double.
//
// Threads: a destination row has one owner, which writes the values of its edges; the heads of a
// row too long for one thread are divided among several. Nothing is allocated.
#pragma once

#include <cstdint>

#include "csr.h"
#include "schedule.h"

namespace distgnn {

// out[k, h] = dot product of head h of x[indices[k]] and of y[v], for k in row v. The order of
// additions is a function of width (head_dot.h).
template <typename T>
void sddmm_dot(const CsrView& graph, const WalkOrderView& walk, const T* x, const T* y,
               std::int64_t num_heads, std::int64_t width, T* out);

// out[k, h] = sum over the columns of head h of factor * leaky_relu(x[indices[k]] + y[v]), for k in
// row v; factor is (num_heads * width,). The order of additions is that of sddmm_dot.
template <typename T>
void sddmm_leaky(const CsrView& graph, const WalkOrderView& walk, const T* x, const T* y,
                 const T* factor, T slope, std::int64_t num_heads, std::int64_t width, T* out);

// What the gradient of y[v] is before it is multiplied by the factor, from the gradients of the
// values; over the transpose, with x and y changed, that of x. Per column of head h, k ascending:
//   out[v] = sum over k in row v of value[edge[k], h] * (x[indices[k]] + y[v] > 0 ? 1 : slope).
// edge[k] is the position of the edge in value, (num_edges, num_heads); null if it is k.
template <typename T>
void sddmm_leaky_backward(const CsrView& graph, const WalkOrderView& walk, const std::int64_t* edge,
                          const T* value, const T* x, const T* y, T slope, std::int64_t num_heads,
                          std::int64_t width, T* out);

// out[k, h] = x[indices[k], h] + y[v, h], for k in row v; width is 1.
template <typename T>
void sddmm_add(const CsrView& graph, const WalkOrderView& walk, const T* x, const T* y,
               std::int64_t num_heads, T* out);

}  // namespace distgnn
