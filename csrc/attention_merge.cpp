// Algorithm: states that others built of the same row are added in the order received.
// Formula: m = max(m1, l2); sum = e^(m1 - m) sum1 + e^(l2 - m) mean2, and so for the denominators,
// that of a mean being 1; l is the logarithm of the sum of exp(e).
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
#include <omp.h>

#include "attention.h"
#include "exponential.h"
#include "isa.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// Neighbouring rows belong to one thread in groups of this many, as in rows.cpp.
constexpr int kOwnedRowsBits = 4;

template <typename T>
struct MergeArgs {
  const T* received;
  const int32_t* rows;
  int64_t num_received;
  int64_t num_heads;
  int64_t width;
  AttentionState<T> state;
};

template <typename T>
DISTGNN_PER_ISA void merge_owned_rows(const MergeArgs<T>& a, int32_t owner, int32_t num_owners) {
  const int64_t columns = a.num_heads * a.width;
  for (int64_t k = 0; k < a.num_received; ++k) {
    if ((a.rows[k] >> kOwnedRowsBits) % num_owners != owner) continue;
    const T* means = a.received + k * (columns + a.num_heads);
    for (int64_t h = 0; h < a.num_heads; ++h) {
      const T log_sum = means[columns + h];
      if (log_sum == 0) continue;
      const int64_t at = a.rows[k] * a.num_heads + h;
      const bool has_state = a.state.denominator[at] != 0;
      const T before = a.state.maximum[at];
      const T common = has_state && before > log_sum ? before : log_sum;
      const T own_scale = has_state ? exponential(before - common) : T(0);
      const T scale = exponential(log_sum - common);
      const T own = has_state ? a.state.denominator[at] * own_scale : T(0);
      a.state.maximum[at] = common;
      a.state.denominator[at] = own + scale;
      const T* from = means + h * a.width;
      T* out = a.state.out + at * a.width;
      if (has_state) {
#pragma omp simd
        for (int64_t j = 0; j < a.width; ++j) out[j] = out[j] * own_scale + from[j] * scale;
      } else {
#pragma omp simd
        for (int64_t j = 0; j < a.width; ++j) out[j] = from[j] * scale;
      }
    }
  }
}

// Columns of edge_sum whose sums stay in registers.
constexpr int64_t kSummedColumns = 8;

// The columns [column, column + kCount) of the sums.
template <int kCount, typename T>
DISTGNN_INLINE void sum_edge_columns(const T* value, int64_t num_edges, int64_t width,
                                     bool accumulate, T* out) {
  T total[kCount];
  for (int j = 0; j < kCount; ++j) total[j] = accumulate ? out[j] : T(0);
  for (int64_t k = 0; k < num_edges; ++k, value += width) {
#pragma omp simd
    for (int j = 0; j < kCount; ++j) total[j] += value[j];
  }
  for (int j = 0; j < kCount; ++j) out[j] = total[j];
}

template <typename T>
DISTGNN_PER_ISA void sum_edges(const int64_t* indptr, const T* value, int64_t num_heads,
                               bool accumulate, T* out, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t num_edges = indptr[row + 1] - indptr[row];
    for (int64_t h = 0; h < num_heads;) {
      const T* values = value + indptr[row] * num_heads + h;
      T* total = out + row * num_heads + h;
      const int64_t left = num_heads - h;
      if (left >= kSummedColumns) {
        sum_edge_columns<kSummedColumns>(values, num_edges, num_heads, accumulate, total);
        h += kSummedColumns;
      } else if (left >= 4) {
        sum_edge_columns<4>(values, num_edges, num_heads, accumulate, total);
        h += 4;
      } else {
        sum_edge_columns<1>(values, num_edges, num_heads, accumulate, total);
        h += 1;
      }
    }
  }
}

}  // namespace

template <typename T>
void merge_attention(const T* received, const int32_t* rows, int64_t num_received,
                     int64_t num_heads, int64_t width, const AttentionState<T>& state) {
  const MergeArgs<T> a{received, rows, num_received, num_heads, width, state};
#pragma omp parallel if (num_received > kRowsPerTask)
  merge_owned_rows(a, omp_get_thread_num(), omp_get_num_threads());
}

template <typename T>
void edge_sum(const int64_t* indptr, int64_t num_rows, const T* value, int64_t num_heads,
              bool accumulate, T* out) {
  for_row_blocks(num_rows, [&](int64_t begin, int64_t end) {
    sum_edges(indptr, value, num_heads, accumulate, out, begin, end);
  });
}

#define DISTGNN_ATTENTION(T)                                                                  \
  template void merge_attention(const T*, const int32_t*, int64_t, int64_t, int64_t,          \
                                const AttentionState<T>&);                                    \
  template void edge_sum(const int64_t*, int64_t, const T*, int64_t, bool, T*);
DISTGNN_ATTENTION(float)
DISTGNN_ATTENTION(double)
#undef DISTGNN_ATTENTION

}  // namespace distgnn
