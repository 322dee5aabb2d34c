// Attention over neighbours: scores per edge and head, their softmax over the edges into a row, and
// the sum of source rows weighted by it. Nothing is stored per edge but one gradient.
//
// For edge u -> v and head h, with s = source_score, t = target_score (num_rows, num_heads):
//   raw = s[u, h] + t[v, h],  e = raw > 0 ? raw : slope * raw, alpha = exp(e) / sum over the edges
//   into v of exp(e),  out[v, h] = sum of alpha * x[u, h]. To raw an edge may add a score of its
//   own, and its alpha may be dropped: set to 0, or scaled up. Rows of x and out have num_heads *
//   width columns, head by head. T is float or double; beside float rows may be stored as bfloat16,
//   which are computed with as float.
//
// The softmax is kept as a state that can be merged across the parts of a cut vertex: the maximum
// of e, the denominator, which is the sum of exp(e - maximum), and the sum of exp(e - maximum) * x.
// A denominator of 0 means that nothing was seen yet.
//
// Threads: a row has one owner, which takes its edges in CSR order; the heads of a row too long for
// one thread are divided among several. No result depends on the number of threads, on the
// instruction set or on the walk order. Nothing is allocated, but for a row that a thread keeps
// where a gradient is rounded to bfloat16. Preconditions as in csr.h.
//
// Velickovic et al., "Graph Attention Networks", ICLR 2018; Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018.
#pragma once

#include <cstdint>

#include "csr.h"
#include "finish.h"
#include "mask.h"
#include "schedule.h"
#include "stored.h"

namespace distgnn {

template <typename T>
struct AttentionScores {
  const T* source;  // (num_sources, num_heads)
  const T* target;  // (num_rows, num_heads)
  std::int64_t num_heads;
  T slope;
};

// What edges have of their own, at their positions in the forward graph; null for what they have
// not. Edges with the same key share the mask of what is dropped.
template <typename T>
struct AttentionEdges {
  const T* score;           // (num_edges, num_heads) added to raw
  const std::int64_t* key;  // (num_edges,) of the mask
  MaskRule<T> mask;
};

template <typename T>
struct AttentionState {
  T* out;          // (num_rows, num_heads * width)
  T* maximum;      // (num_rows, num_heads)
  T* denominator;  // (num_rows, num_heads)
};

// The state of every row after its edges. With accumulate, the state already there takes part;
// else rows without edges have a state of zeros. The maximum is found before anything is added, so
// that a state is rescaled at most once. X is T or Bf16.
template <typename X, typename T>
void attend(const CsrView& graph, const WalkOrderView& walk, const AttentionScores<T>& scores,
            const AttentionEdges<T>& edges, const X* x, std::int64_t width, bool accumulate,
            const AttentionState<T>& state);

// Merges received states: row k, laid out [num_heads * width means | logarithms of the sums of
// exp(e)], into row rows[k] of the state, k ascending. A logarithm of 0 stands for nothing seen.
// rows may repeat: every row of the state has one owner, which walks the whole list.
template <typename T>
void merge_attention(const T* received, const std::int32_t* rows, std::int64_t num_received,
                     std::int64_t num_heads, std::int64_t width, const AttentionState<T>& state);

// Divides the sums by the denominators and makes maxima the logarithms of the sums of exp(e); both
// are 0 where nothing was seen. The quotients go through the finish to the result, which may be the
// sums. Denominators are left as they are.
template <typename T>
void finish_attention(std::int64_t num_rows, std::int64_t num_heads, std::int64_t width,
                      const AttentionState<T>& state, const Finish<T>& finish,
                      const Stored<T>& result);

// out[v, h] = sum over the columns of head h of grad[v] * (scale * result[v] - bias); bias may be
// null. X is T or Bf16.
template <typename T, typename X>
void attention_delta(std::int64_t num_rows, std::int64_t num_heads, std::int64_t width,
                     const X* grad, const X* result, const T* bias, T scale, T* out);

// What the backward reads of the rows that edges go to.
template <typename T>
struct AttentionTargets {
  const T* score;        // (num_rows, num_heads)
  const T* log_sum;      // (num_rows, num_heads) as finish_attention leaves it
  const T* delta;        // (num_rows, num_heads) dot product of grad and out
  Stored<const T> grad;  // (num_rows, num_heads * width) of the finished out
};

// What it writes.
template <typename T>
struct AttentionGradients {
  Stored<T> x;  // (num_sources, num_heads * width)
  T* source;    // (num_sources, num_heads) of the source scores
  // (num_edges, num_heads) of raw, at the edge's position in the forward graph; may be the scores
  // of the edges, whose gradient it is.
  T* edge;
};

// Backward, over the transpose: row u lists the destinations v of the edges out of u, and edge[k]
// is the position of that edge in the forward graph. alpha is computed again:
//   alpha = exp(e - log_sum[v]),  grad_x[u] (+)= sum of alpha * grad[v],
//   grad_raw = alpha * (grad[v] . x[u] - delta[v]) * (raw > 0 ? 1 : slope),
//   grad_source[u] (+)= sum of grad_raw.
// Where alpha was dropped or scaled, so are alpha in grad_x and the product in grad_raw. With
// accumulate, the sums start from what is there. Sums that are stored as bfloat16 are rounded once.
template <typename T>
void attend_backward(const CsrView& transpose, const WalkOrderView& walk, const std::int64_t* edge,
                     const T* source_score, T slope, const AttentionEdges<T>& edges,
                     const AttentionTargets<T>& targets, const Stored<const T>& x,
                     std::int64_t num_heads, std::int64_t width, bool accumulate,
                     const AttentionGradients<T>& gradients);

// out[v, h] (+)= sum over the edges k of row v of value[k, h], k ascending; value is
// (num_edges, num_heads), indptr (num_rows + 1,).
template <typename T>
void edge_sum(const std::int64_t* indptr, std::int64_t num_rows, const T* value,
              std::int64_t num_heads, bool accumulate, T* out);

}  // namespace distgnn
