// Algorithm: moments of slices of rows are joined in a fixed order, then rows are normalized.
// Formula: y = (x - mean) * rsqrt(variance + eps) * weight + bias, over the rows of each column.
// Source: Ioffe and Szegedy, ICML 2015; Chan, Golub and LeVeque, 1983, for joining moments.
#include "csr.h"
#include "norm_tile.h"

namespace distgnn {
namespace {

using std::int64_t;

// Rows whose sums are made in T before they are joined with others in double.
constexpr int64_t kChunkRows = 64;

// Joins the moments of some rows of a column with those of others.
DISTGNN_INLINE void join(double added, double count, double other_mean, double other_deviation,
                         double& mean, double& deviation) {
  const double share = added / (count + added);
  const double difference = other_mean - mean;
  mean += difference * share;
  deviation += other_deviation + difference * difference * count * share;
}

template <typename T>
DISTGNN_INLINE void add_tile_moments(const T* x, int64_t width, int64_t count, int64_t num_before,
                                     int64_t num_rows, double* mean, double* deviation) {
  T middle[kNormColumns] = {};
  T left[kNormColumns] = {};
  T squares[kNormColumns] = {};
  for (int64_t row = 0; row < num_rows; ++row) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) middle[j] += x[row * width + j];
  }
  for (int64_t j = 0; j < count; ++j) middle[j] /= static_cast<T>(num_rows);
  for (int64_t row = 0; row < num_rows; ++row) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      const T difference = x[row * width + j] - middle[j];
      left[j] += difference;
      squares[j] += difference * difference;
    }
  }
  const auto added = static_cast<double>(num_rows);
  for (int64_t j = 0; j < count; ++j) {
    // The middle is rounded: what is left tells by how much it is not the mean.
    const double missed = left[j] / added;
    join(added, static_cast<double>(num_before), middle[j] + missed,
         squares[j] - missed * missed * added, mean[j], deviation[j]);
  }
}

template <typename T>
DISTGNN_PER_ISA void add_moments(const NormInput<T>& input, int64_t begin, int64_t end,
                                 double* mean, double* deviation) {
  const int64_t width = input.width;
  for (int64_t row = begin; row < end; row += kChunkRows) {
    const int64_t num_rows = std::min(kChunkRows, end - row);
    for (int64_t column = 0; column < width; column += kNormColumns) {
      const T* x = input.x + row * width + column;
      double* const to = mean + column;
      double* const squares = deviation + column;
      if (width - column >= kNormColumns) {
        add_tile_moments(x, width, kNormColumns, row - begin, num_rows, to, squares);
      } else {
        add_tile_moments(x, width, width - column, row - begin, num_rows, to, squares);
      }
    }
  }
}

template <typename T>
DISTGNN_INLINE void normalise_tile(const NormInput<T>& input, const T* mean, const T* scale,
                                   const Finish<T>& finish, const Stored<T>& out, int64_t row,
                                   int64_t column, int64_t count) {
  const T* x = input.x + row * input.width + column;
  T y[kNormColumns];
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) y[j] = (x[j] - mean[column + j]) * scale[column + j];
  finish_columns(finish, row, column, count, y);
  leave_tile(y, out, row * input.width + column, count);
}

template <typename T>
DISTGNN_PER_ISA void normalise_block(const NormInput<T>& input, const T* mean, const T* scale,
                                     const Finish<T>& finish, const Stored<T>& out, int64_t begin,
                                     int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    int64_t column = 0;
    for (; input.width - column >= kNormColumns; column += kNormColumns) {
      normalise_tile(input, mean, scale, finish, out, row, column, kNormColumns);
    }
    if (column == input.width) continue;
    normalise_tile(input, mean, scale, finish, out, row, column, input.width - column);
  }
}

template <typename T>
DISTGNN_INLINE void add_tile_gradient(const NormInput<T>& input, const NormGradient<T>& gradient,
                                      const T* mean, const T* rstd, int64_t begin, int64_t end,
                                      int64_t column, int64_t count, double* sums) {
  T plain[kNormColumns] = {};
  T along[kNormColumns] = {};
  T g[kNormColumns];
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row * input.width + column;
    read_gradient(gradient, first, count, g);
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      plain[j] += g[j];
      along[j] += g[j] * ((input.x[first + j] - mean[column + j]) * rstd[column + j]);
    }
  }
  for (int64_t j = 0; j < count; ++j) {
    sums[column + j] += plain[j];
    sums[input.width + column + j] += along[j];
  }
}

template <typename T>
DISTGNN_PER_ISA void add_gradient(const NormInput<T>& input, const NormGradient<T>& gradient,
                                  const T* mean, const T* rstd, int64_t begin, int64_t end,
                                  double* sums) {
  for (int64_t row = begin; row < end; row += kChunkRows) {
    const int64_t last = std::min(end, row + kChunkRows);
    int64_t column = 0;
    for (; input.width - column >= kNormColumns; column += kNormColumns) {
      add_tile_gradient(input, gradient, mean, rstd, row, last, column, kNormColumns, sums);
    }
    if (column == input.width) continue;
    add_tile_gradient(input, gradient, mean, rstd, row, last, column, input.width - column, sums);
  }
}

template <typename T>
DISTGNN_INLINE void tile_backward(const NormInput<T>& input, const NormGradient<T>& gradient,
                                  const T* mean, const T* factors, bool is_counted, int64_t first,
                                  int64_t column, int64_t count, T* out) {
  const int64_t width = input.width;
  T g[kNormColumns];
  read_gradient(gradient, first, count, g);
  const T* own = factors + column;
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) {
    const T scaled = g[j] * own[j];
    const T shaped = own[width + j] + (input.x[first + j] - mean[column + j]) * own[2 * width + j];
    out[first + j] = is_counted ? scaled - shaped : scaled;
  }
}

template <typename T>
DISTGNN_PER_ISA void block_backward(const NormInput<T>& input, const NormGradient<T>& gradient,
                                    const T* mean, const T* factors, int64_t num_counted,
                                    int64_t begin, int64_t end, T* out) {
  for (int64_t row = begin; row < end; ++row) {
    const bool is_counted = row < num_counted;
    const int64_t start = row * input.width;
    int64_t column = 0;
    for (; input.width - column >= kNormColumns; column += kNormColumns) {
      tile_backward(input, gradient, mean, factors, is_counted, start + column, column,
                    kNormColumns, out);
    }
    if (column == input.width) continue;
    tile_backward(input, gradient, mean, factors, is_counted, start + column, column,
                  input.width - column, out);
  }
}

}  // namespace

int64_t column_sums_workspace(int64_t num_rows, int64_t width) {
  return Slices(num_rows).count * 2 * width;
}

template <typename T>
void column_moments(const NormInput<T>& input, double* workspace, double* mean,
                    double* deviation) {
  const int64_t width = input.width;
  for_slices(input.num_rows, [&](int64_t slice, int64_t begin, int64_t end) {
    double* const own = workspace + slice * 2 * width;
    std::fill_n(own, 2 * width, 0.0);
    add_moments(input, begin, end, own, own + width);
  });
  std::fill_n(mean, width, 0.0);
  std::fill_n(deviation, width, 0.0);
  const Slices slices(input.num_rows);
  for (int64_t before = 0; before < input.num_rows; before += slices.rows) {
    const auto added = static_cast<double>(std::min(slices.rows, input.num_rows - before));
    for (int64_t j = 0; j < width; ++j) {
      join(added, static_cast<double>(before), workspace[j], workspace[width + j], mean[j],
           deviation[j]);
    }
    workspace += 2 * width;
  }
}

template <typename T>
void normalise_columns(const NormInput<T>& input, const T* mean, const T* scale,
                       const Finish<T>& finish, const Stored<T>& out) {
  for_row_blocks(input.num_rows, [&](int64_t begin, int64_t end) {
    normalise_block(input, mean, scale, finish, out, begin, end);
  });
}

template <typename T>
void column_gradient_sums(const NormInput<T>& input, const NormGradient<T>& gradient, const T* mean,
                          const T* rstd, double* workspace, double* sums) {
  const int64_t size = 2 * input.width;
  for_slices(input.num_rows, [&](int64_t slice, int64_t begin, int64_t end) {
    std::fill_n(workspace + slice * size, size, 0.0);
    add_gradient(input, gradient, mean, rstd, begin, end, workspace + slice * size);
  });
  std::copy_n(workspace, size, sums);
  for (int64_t slice = 1; slice < Slices(input.num_rows).count; ++slice) {
    for (int64_t j = 0; j < size; ++j) sums[j] += workspace[slice * size + j];
  }
}

template <typename T>
void columns_backward(const NormInput<T>& input, const NormGradient<T>& gradient, const T* mean,
                      const T* factors, int64_t num_counted, T* out) {
  for_row_blocks(input.num_rows, [&](int64_t begin, int64_t end) {
    block_backward(input, gradient, mean, factors, num_counted, begin, end, out);
  });
}

template void column_moments(const NormInput<float>&, double*, double*, double*);
template void column_moments(const NormInput<double>&, double*, double*, double*);
template void normalise_columns(const NormInput<float>&, const float*, const float*,
                                const Finish<float>&, const Stored<float>&);
template void normalise_columns(const NormInput<double>&, const double*, const double*,
                                const Finish<double>&, const Stored<double>&);
template void column_gradient_sums(const NormInput<float>&, const NormGradient<float>&,
                                   const float*, const float*, double*, double*);
template void column_gradient_sums(const NormInput<double>&, const NormGradient<double>&,
                                   const double*, const double*, double*, double*);
template void columns_backward(const NormInput<float>&, const NormGradient<float>&, const float*,
                               const float*, int64_t, float*);
template void columns_backward(const NormInput<double>&, const NormGradient<double>&, const double*,
                               const double*, int64_t, double*);

}  // namespace distgnn
