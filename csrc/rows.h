// Rows in and out of a buffer: what an exchange packs before sending and adds after receiving; and
// rows times a number each.
//
// Matrices are row-major and contiguous, width values a row; rows is (num_rows,) with values that
// are rows of the larger matrix. out may not overlap an input. Nothing is allocated.
//
// Threads: gather_rows and blend_rows give every row of the buffer one owner. scatter_add_rows
// gives every row of out one owner, which walks the whole index list and adds its own rows in the
// order of the list; so rows may repeat, without atomics, and the bits do not depend on the number
// of threads.
#pragma once

#include <cstdint>

namespace distgnn {

// out[k] = x[rows[k]]; out is (num_rows, width).
template <typename T>
void gather_rows(const T* x, std::int64_t width, const std::int32_t* rows, std::int64_t num_rows,
                 T* out);

// out[rows[k]] += x[k], k ascending; x is (num_rows, width). Rows stored as Bf16 are added to
// floats.
template <typename X, typename T>
void scatter_add_rows(const X* x, std::int64_t width, const std::int32_t* rows,
                      std::int64_t num_rows, T* out);

// out[i] = factor[i] * x[i], both (num_rows, width) and perhaps the same matrix. X, Y: two times
// float, double or Bf16; or float and Bf16, which rounds. T is float unless X is double.
template <typename X, typename Y, typename T>
void scale_rows(const X* x, std::int64_t num_rows, std::int64_t width, const T* factor, Y* out);

// out[rows[k]] += weight * (x[k] - out[rows[k]]); a weight of 1 copies bits. No row repeats. T is
// float unless X is double.
template <typename X, typename T>
void blend_rows(const X* x, std::int64_t width, const std::int32_t* rows, std::int64_t num_rows,
                T weight, X* out);

}  // namespace distgnn
