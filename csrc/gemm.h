// Products of tall matrices of rows with small dense ones: the update of a layer, and its
// gradients.
//
// Every entry of a result is one chain of fused multiply-adds in the order of the depth, in all
// instruction sets; where a long sum is divided, the division depends on the shape alone. So the
// bits are the same for any number of threads and any instruction set. A processor without fused
// multiply-adds computes them in software, correctly and slowly.
//
// The small matrix is packed into panels of few columns that stay in registers; a panel is walked
// once for a dozen rows. Threads own rows of the result. Nothing is allocated. Rows may be stored
// as bfloat16 where T is float: they are rounded once when they are left, and sums are floats.
//
// Where all that is multiplied is stored as bfloat16, matrices are rounded to it as well, and a sum
// takes its terms in pairs, the second of each pair first: what vdpbf16ps does in one instruction,
// twice as fast. Other processors do the same one by one and get the same bits. Beside wider rows
// bfloat16 is widened when it is read, and the matrix stays as it is.
//
// Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS 2008.
#pragma once

#include <cstdint>

#include "finish.h"
#include "stored.h"

namespace distgnn {

// Rows of x, all of them in order or those picked by number, and what they are multiplied with.
template <typename T>
struct Factor {
  Stored<const T> x;         // (rows of x, depth)
  const std::int32_t* rows;  // (num_rows,) row of x of each row of the product, or null
  std::int64_t depth;
  const T* panels;  // the (depth, width) matrix, from pack_panels
  bool is_out;      // whether x is out, all rows of both in order; x is then copied block by block
};

inline constexpr int kMaxFactors = 2;

// out[i] (or out[rows[i]]) (+)= sum over factors f of f.x[f.rows[i]] * f.matrix, then the finish.
// Without factors, which only goes with accumulate, rows are finished where they lie.
template <typename T>
struct Product {
  Factor<T> factors[kMaxFactors];
  int num_factors;
  bool is_paired;  // all rows are stored as bfloat16, and the panels are those of pairs
  std::int64_t num_rows;
  std::int64_t width;
  bool accumulate;
  Finish<T> finish;
  const std::int32_t* rows;  // (num_rows,) distinct, or null
  Stored<T> out;             // (rows of out, width)
};

// Values that the panels of a (depth, width) matrix take, for rows multiplied in pairs or not.
template <typename T>
std::int64_t panels_size(std::int64_t depth, std::int64_t width, bool is_paired);

// Packs the matrix whose entry (k, j) is matrix[k * row_stride + j * column_stride].
template <typename T>
void pack_panels(const T* matrix, std::int64_t depth, std::int64_t width, std::int64_t row_stride,
                 std::int64_t column_stride, bool is_paired, T* panels);

// Values of workspace for that many threads: 0 unless some rows are stored as bfloat16, or written
// where they were read.
template <typename T>
std::int64_t multiply_workspace(const Product<T>& product, int num_threads);

template <typename T>
void multiply(const Product<T>& product, T* workspace);

// The other end of a product: rows that were multiplied, and the gradient of their matrix.
template <typename T>
struct GradientFactor {
  Stored<const T> x;         // (rows of x, depth)
  const std::int32_t* rows;  // (num_rows,) or null
  std::int64_t depth;
  T* gradient;  // (width, depth): the layout of weights; written
};

// gradient[j][k] = sum over rows i of grad[i][j] * x[rows[i]][k], for each factor; and
// bias_gradient[j] = sum over i of grad[i][j] unless it is null. Where grad and all rows are stored
// as bfloat16, rows are taken in pairs.
//
// With an activation (the output of a relu, dropped out or not), grad is first multiplied by scale
// where the activation is positive and set to 0 elsewhere, in place; that needs no factors.
template <typename T>
struct Gradient {
  GradientFactor<T> factors[kMaxFactors];
  int num_factors;
  std::int64_t num_rows;
  std::int64_t width;
  Stored<T> grad;              // (num_rows, width); written only if there is an activation
  Stored<const T> activation;  // (num_rows, width), stored as grad is; or null
  T scale;
  T* bias_gradient;  // (width,) or null
};

// Values of workspace for that many threads.
template <typename T>
std::int64_t gradient_workspace(const Gradient<T>& gradient, int num_threads);

template <typename T>
void multiply_transposed(const Gradient<T>& gradient, T* workspace);

}  // namespace distgnn
