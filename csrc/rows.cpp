// Algorithm: rows are dealt to threads by owner; each owner walks the whole list in order.
// Formula: out[k] = x[rows[k]]; out[rows[k]] += x[k]; out[i] = f[i] x[i].
// Source: Md et al., "DistGNN", SC 2021, for packing what travels.
#include "rows.h"

#include <omp.h>

#include <cstring>

#include "csr.h"
#include "isa.h"
#include "number.h"
#include "tile.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// Neighbouring rows of out belong to one thread in groups of this many: a group spans whole cache
// lines, and lists that favour some range of rows still spread over all threads.
constexpr int kOwnedRowsBits = 4;

template <typename T>
DISTGNN_PER_ISA void copy_rows(const T* x, int64_t width, const int32_t* rows, int64_t begin,
                               int64_t end, int64_t last_row, T* out) {
  for (int64_t k = begin; k < end; ++k) {
    const T* coming = x + rows[std::min(k + kPrefetchDistance, last_row)] * width;
    const T* from = x + rows[k] * width;
    T* to = out + k * width;
    for_tiles<(sizeof(T) < 4 ? 64 : 256 / sizeof(T))>(width, [&](auto tile) DISTGNN_LAMBDA_INLINE {
      prefetch_tile<tile.kNumColumns>(coming + tile.column);
      std::memcpy(to + tile.column, from + tile.column, tile.kNumColumns * sizeof(T));
    });
  }
}

template <typename X, typename T>
DISTGNN_PER_ISA void add_owned_rows(const X* x, int64_t width, const int32_t* rows,
                                    int64_t num_rows, T* out, int32_t owner, int32_t num_owners) {
  for (int64_t k = 0; k < num_rows; ++k) {
    if ((rows[k] >> kOwnedRowsBits) % num_owners != owner) continue;
    const X* from = x + k * width;
    T* to = out + rows[k] * width;
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) to[j] += widen(from[j]);
  }
}

template <typename X, typename Y, typename T>
DISTGNN_PER_ISA void scale_some(const X* x, int64_t width, const T* factor, int64_t begin,
                                int64_t end, Y* out) {
  for (int64_t row = begin; row < end; ++row) {
    const X* from = x + row * width;
    Y* to = out + row * width;
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) store(factor[row] * widen(from[j]), to + j);
  }
}

template <typename X, typename T>
DISTGNN_PER_ISA void blend_block(const X* x, int64_t width, const int32_t* rows, int64_t begin,
                                 int64_t end, T weight, X* out) {
  for (int64_t k = begin; k < end; ++k) {
    const X* from = x + k * width;
    X* to = out + rows[k] * width;
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) {
      const T old = widen(to[j]);
      store(old + weight * (widen(from[j]) - old), to + j);
    }
  }
}

template <typename T>
void put_rows(const T* x, int64_t width, const int32_t* rows, int64_t begin, int64_t end, T* out) {
  const size_t row_bytes = static_cast<size_t>(width) * sizeof(T);
  for (int64_t k = begin; k < end; ++k) {
    std::memcpy(out + rows[k] * width, x + k * width, row_bytes);
  }
}

}  // namespace

template <typename T>
void gather_rows(const T* x, int64_t width, const int32_t* rows, int64_t num_rows, T* out) {
  for_row_blocks(num_rows, [&](int64_t begin, int64_t end) {
    copy_rows(x, width, rows, begin, end, num_rows - 1, out);
  });
}

template <typename X, typename T>
void scatter_add_rows(const X* x, int64_t width, const int32_t* rows, int64_t num_rows, T* out) {
#pragma omp parallel if (num_rows > kRowsPerTask)
  add_owned_rows(x, width, rows, num_rows, out, omp_get_thread_num(), omp_get_num_threads());
}

template <typename X, typename Y, typename T>
void scale_rows(const X* x, int64_t num_rows, int64_t width, const T* factor, Y* out) {
  for_row_blocks(num_rows, [&](int64_t begin, int64_t end) {
    scale_some(x, width, factor, begin, end, out);
  });
}

template <typename X, typename T>
void blend_rows(const X* x, int64_t width, const int32_t* rows, int64_t num_rows, T weight,
                X* out) {
  for_row_blocks(num_rows, [&](int64_t begin, int64_t end) {
    if (weight == T(1)) {
      put_rows(x, width, rows, begin, end, out);
    } else {
      blend_block(x, width, rows, begin, end, weight, out);
    }
  });
}

template void gather_rows(const float*, int64_t, const int32_t*, int64_t, float*);
template void gather_rows(const double*, int64_t, const int32_t*, int64_t, double*);
template void gather_rows(const Bf16*, int64_t, const int32_t*, int64_t, Bf16*);
template void scatter_add_rows(const float*, int64_t, const int32_t*, int64_t, float*);
template void scatter_add_rows(const double*, int64_t, const int32_t*, int64_t, double*);
template void scatter_add_rows(const Bf16*, int64_t, const int32_t*, int64_t, float*);
template void scale_rows(const float*, int64_t, int64_t, const float*, float*);
template void scale_rows(const double*, int64_t, int64_t, const double*, double*);
template void scale_rows(const Bf16*, int64_t, int64_t, const float*, Bf16*);
template void scale_rows(const float*, int64_t, int64_t, const float*, Bf16*);
template void blend_rows(const float*, int64_t, const int32_t*, int64_t, float, float*);
template void blend_rows(const double*, int64_t, const int32_t*, int64_t, double, double*);
template void blend_rows(const Bf16*, int64_t, const int32_t*, int64_t, float, Bf16*);

}  // namespace distgnn
