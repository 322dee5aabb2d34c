// Algorithm: a row's sums are folded from tiles of columns, then the row is normalized.
// Formula: y = (x - mean) * rsqrt(variance + eps) * weight + bias, over the columns of each row.
// Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
#include <cmath>

#include "csr.h"
#include "norm_tile.h"

namespace distgnn {
namespace {

using std::int64_t;

// Sums of the columns of a row, one for each column of a tile, until they are folded.
template <typename T>
struct RowSum {
  T lanes[kNormColumns] = {};

  DISTGNN_INLINE T folded() {
    for (int64_t half = kNormColumns / 2; half > 0; half /= 2) {
#pragma omp simd
      for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    }
    return lanes[0];
  }
};

template <typename T>
struct RowStatistics {
  T mean;
  T rstd;
};

template <typename T>
DISTGNN_INLINE RowStatistics<T> statistics(const T* x, int64_t width, T eps) {
  RowSum<T> sum;
  for (int64_t column = 0; column < width; column += kNormColumns) {
    const int64_t count = std::min(kNormColumns, width - column);
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) sum.lanes[j] += x[column + j];
  }
  const T mean = sum.folded() / static_cast<T>(width);
  RowSum<T> squares;
  for (int64_t column = 0; column < width; column += kNormColumns) {
    const int64_t count = std::min(kNormColumns, width - column);
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      const T difference = x[column + j] - mean;
      squares.lanes[j] += difference * difference;
    }
  }
  return {mean, T(1) / std::sqrt(squares.folded() / static_cast<T>(width) + eps)};
}

template <typename T>
DISTGNN_PER_ISA void normalise_block(const NormInput<T>& input, const T* weight, T eps,
                                     const Finish<T>& finish, const Stored<T>& out, int64_t begin,
                                     int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = input.x + row * input.width;
    const RowStatistics<T> own = statistics(x, input.width, eps);
    for (int64_t column = 0; column < input.width; column += kNormColumns) {
      const int64_t count = std::min(kNormColumns, input.width - column);
      T y[kNormColumns];
#pragma omp simd
      for (int64_t j = 0; j < count; ++j) {
        y[j] = (x[column + j] - own.mean) * own.rstd * weight[column + j];
      }
      finish_columns(finish, row, column, count, y);
      leave_tile(y, out, row * input.width + column, count);
    }
  }
}

// dx = rstd (g w - mean of g w - xhat mean of g w xhat), and what the row adds to the sums.
template <typename T>
DISTGNN_INLINE void row_backward(const NormInput<T>& input, const NormGradient<T>& gradient,
                                 const T* weight, T eps, int64_t row, T* out, T* sums) {
  const int64_t width = input.width;
  const int64_t start = row * width;
  const T* x = input.x + start;
  const RowStatistics<T> own = statistics(x, width, eps);
  RowSum<T> plain, along;
  T g[kNormColumns];
  for (int64_t column = 0; column < width; column += kNormColumns) {
    const int64_t count = std::min(kNormColumns, width - column);
    read_gradient(gradient, start + column, count, g);
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      const T normal = (x[column + j] - own.mean) * own.rstd;
      const T weighted = g[j] * weight[column + j];
      plain.lanes[j] += weighted;
      along.lanes[j] += weighted * normal;
      sums[column + j] += g[j];
      sums[width + column + j] += g[j] * normal;
    }
  }
  const T mean_plain = plain.folded() / static_cast<T>(width);
  const T mean_along = along.folded() / static_cast<T>(width);
  for (int64_t column = 0; column < width; column += kNormColumns) {
    const int64_t count = std::min(kNormColumns, width - column);
    read_gradient(gradient, start + column, count, g);
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      const T normal = (x[column + j] - own.mean) * own.rstd;
      const T shaped = mean_plain + normal * mean_along;
      out[start + column + j] = (g[j] * weight[column + j] - shaped) * own.rstd;
    }
  }
}

template <typename T>
DISTGNN_PER_ISA void block_backward(const NormInput<T>& input, const NormGradient<T>& gradient,
                                    const T* weight, T eps, int64_t begin, int64_t end, T* out,
                                    T* sums) {
  for (int64_t row = begin; row < end; ++row) {
    row_backward(input, gradient, weight, eps, row, out, sums);
  }
}

}  // namespace

template <typename T>
void normalise_rows(const NormInput<T>& input, const T* weight, T eps, const Finish<T>& finish,
                    const Stored<T>& out) {
  for_row_blocks(input.num_rows, [&](int64_t begin, int64_t end) {
    normalise_block(input, weight, eps, finish, out, begin, end);
  });
}

template <typename T>
void rows_backward(const NormInput<T>& input, const NormGradient<T>& gradient, const T* weight,
                   T eps, T* workspace, T* out, T* sums) {
  const int64_t size = 2 * input.width;
  for_slices(input.num_rows, [&](int64_t slice, int64_t begin, int64_t end) {
    T* const own = workspace + slice * size;
    std::fill_n(own, size, T(0));
    block_backward(input, gradient, weight, eps, begin, end, out, own);
  });
  std::copy_n(workspace, size, sums);
  for (int64_t slice = 1; slice < Slices(input.num_rows).count; ++slice) {
    for (int64_t j = 0; j < size; ++j) sums[j] += workspace[slice * size + j];
  }
}

template void normalise_rows(const NormInput<float>&, const float*, float, const Finish<float>&,
                             const Stored<float>&);
template void normalise_rows(const NormInput<double>&, const double*, double, const Finish<double>&,
                             const Stored<double>&);
template void rows_backward(const NormInput<float>&, const NormGradient<float>&, const float*,
                            float, float*, float*, float*);
template void rows_backward(const NormInput<double>&, const NormGradient<double>&, const double*,
                            double, double*, double*, double*);

}  // namespace distgnn
