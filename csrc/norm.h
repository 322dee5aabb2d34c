// Normalisation of columns (batch norm) or of rows (layer norm), with the relu and dropout behind
// it.
//
// Statistics of columns come as means and squared deviations from them, which are made chunk by
// chunk and joined, so that no digits cancel; those of rows are made again in backward, where a row
// is in the first cache anyway. Backward needs what went in, and what came out: a value of the
// latter is positive just where relu and dropout let it pass, so that no mask and no normalised row
// is kept.
//
// Threads own rows of what is left. Sums over columns are those of slices, in order, divided by the
// number of rows alone; sums over a row take 64 columns at a time and are folded in half. So the
// bits are the same for any number of threads and any instruction set. Nothing is allocated.
//
// Ioffe and Szegedy, "Batch Normalization", ICML 2015; Ba, Kiros and Hinton, "Layer Normalization",
// 2016; Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
// Variances", COMPSTAT 1982, for the joining.
#pragma once

#include <cstdint>

#include "finish.h"
#include "stored.h"

namespace distgnn {

// Rows that are, or were, normalised.
template <typename T>
struct NormInput {
  const T* x;  // (num_rows, width)
  std::int64_t num_rows;
  std::int64_t width;
};

// The gradient of what came out.
template <typename T>
struct NormGradient {
  Stored<const T> grad;        // (num_rows, width)
  Stored<const T> activation;  // (num_rows, width) what came out, stored as grad is; null: no relu
  T scale;                     // of dropout
};

// Values of workspace that sums over columns need.
std::int64_t column_sums_workspace(std::int64_t num_rows, std::int64_t width);

// mean[j] of column j, and deviation[j], its sum of squared deviations from that; 0 of no rows.
template <typename T>
void column_moments(const NormInput<T>& input, double* workspace, double* mean, double* deviation);

// out = finish((x - mean) * scale), with a mean and a scale for each column.
template <typename T>
void normalise_columns(const NormInput<T>& input, const T* mean, const T* scale,
                       const Finish<T>& finish, const Stored<T>& out);

// sums[0][j] = sum of g and sums[1][j] = sum of g (x - mean) rstd over the rows of column j, where
// g is the gradient before relu and dropout.
template <typename T>
void column_gradient_sums(const NormInput<T>& input, const NormGradient<T>& gradient, const T* mean,
                          const T* rstd, double* workspace, double* sums);

// out = g factors[0] - factors[1] - (x - mean) factors[2] with (3, width) factors; of rows from
// num_counted on, which shaped no statistic, out = g factors[0]. out may be grad.
template <typename T>
void columns_backward(const NormInput<T>& input, const NormGradient<T>& gradient, const T* mean,
                      const T* factors, std::int64_t num_counted, T* out);

// out = finish((x - mean) rstd * weight), with a mean and 1 / sqrt(variance + eps) for each row.
template <typename T>
void normalise_rows(const NormInput<T>& input, const T* weight, T eps, const Finish<T>& finish,
                    const Stored<T>& out);

// The gradient of x; and sums[0][j], sums[1][j] as above: the gradients of bias and weight. out may
// be grad. The workspace is of column_sums_workspace values.
template <typename T>
void rows_backward(const NormInput<T>& input, const NormGradient<T>& gradient, const T* weight,
                   T eps, T* workspace, T* out, T* sums);

}  // namespace distgnn
