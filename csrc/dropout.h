// Dropout whose mask is a function of (seed, row key, column), not of a generator's state.
//
// With the vertex's global id as key, a vertex gets the same mask on any partition, in any order
// and for any number of threads, and backward draws the mask again instead of storing it: it is the
// same call with the gradient for x. The seed carries what else must differ: run, layer and epoch.
//
// Encoding: the key is mixed with the seed into 64 bits, once per row; column and those bits are
// mixed by 32-bit multiplications and shifts, which all instruction sets have as vectors. A value
// is kept where the hash is at least probability * 2^32, and scaled by 1 / (1 - probability).
//
// Threads: an output row (or entry) has one owner. Nothing is allocated.
//
// Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, for counter-based drawing;
// Steele et al., "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, for the 64-bit mix.
#pragma once

#include <cstdint>

namespace distgnn {

// out[i][j] = x[i][j] / (1 - probability) where the hash keeps (seed, row_key[i], j), otherwise 0.
// probability is in [0, 1). x and out are (num_rows, width) and may be the same matrix. X and Y:
// two times float, double or bfloat16; or float and bfloat16, which rounds.
template <typename X, typename Y>
void dropout(const X* x, const std::int64_t* row_key, std::int64_t num_rows, std::int64_t width,
             std::uint64_t seed, double probability, Y* out);

// The same for the stored entries of a sparse matrix: entry e lies in the row of key row_key[e] and
// in column[e], and meets the fate it would meet in the dense matrix.
template <typename T>
void dropout_values(const T* values, const std::int64_t* row_key, const std::int32_t* column,
                    std::int64_t num_values, std::uint64_t seed, double probability, T* out);

}  // namespace distgnn
