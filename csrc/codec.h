// Rows as they travel: a few bits for a value instead of 16 or 32.
//
// A coded row is a header, packed codes, and its last columns as they are, each in 4 bytes.
//   8, 4, 2 bits: the header is (low, unit), two bfloat16. low is the minimum rounded down and unit
//   is rounded up, so that low + unit * (2^bits - 1) reaches the maximum. Codes are taken against
//   this rounded pair, so rounding the header adds no bias: code = floor((x - low) / unit + r).
//   1 bit: the header is two centroids, the means of the values at most the mean and above it.
//   16 bits: no header; the codes are bfloat16, rounded to the nearest, ties to even.
// A row without coded columns has no header.
//
// Packing: n codes of 4, 2 or 1 bits take B = ceil(n * bits / 8) bytes. Byte k holds the codes of
// the columns k, B + k, 2 B + k, ..., the first in the lowest bits; a column past the last has code
// 0. So neighbours in memory stay neighbours in a vector, and nothing is shuffled.
//
// Random rounding: r is (field + 1/2) / 2^f, where field is a part of the hash of (seed, row of the
// message, number); see mask.h. n codes have H = ceil(n / s) numbers, s = 2 for 8 and 4 bits and
// s = 4 for 2 bits. The column i H + k takes part i of the hash of number k: 15 bits, or 8 where
// s = 4. Nearest: r = 1/2. One bit is not rounded at random.
//
// A value that is NaN, infinite, or beyond 2^96 in magnitude cannot be coded, with 16 bits neither.
//
// Threads: a coded row has one owner, and so has a row of out. Where rows are added, the owner
// walks the whole list and adds its own rows in the order of the list. Nothing is allocated.
//
// Time: coding a row of w columns takes about 20 + 0.3 w ns of a Zen 4 core, to the nearest 18 +
// 0.17 w: the ends of the range and two divisions wait for each other. So rows of 16 columns are
// coded at 2.5 GB/s of floats, of 64 at 7, of 256 at 11. Decoding is about as fast as memcpy, at 16
// columns a third of it. `distgnn bench codecs` measures both.
//
// Alistarh et al., "QSGD", NIPS 2017, for random rounding; Markov et al., "CGX", Middleware 2022,
// for minimum and unit of a bucket; Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech
// 2014, for the two centroids.
#pragma once

#include <cstdint>

namespace distgnn {

// How the rows of a message are coded.
struct RowCode {
  std::int64_t width;                // columns of a row, the exact ones included
  std::int64_t exact_columns;        // the last of them, which travel as floats
  int bits;                          // 16, 8, 4, 2 or 1
  const std::uint8_t* bits_of_row;   // (count,) instead of bits, or null
  const std::int64_t* offsets;       // (count,) first byte of each row; null: one after the other
};

// Bytes of a row.
std::int64_t coded_row_bytes(std::int64_t width, std::int64_t exact_columns, int bits);

// Codes row picked[k] of x, or row k if picked is null, as row k of the message. seed: null rounds
// to the nearest. Returns the first k that cannot be coded, or -1. X is float or Bf16.
template <typename X>
std::int64_t encode_rows(const X* x, const std::int32_t* picked, std::int64_t count,
                         const RowCode& code, const std::uint64_t* seed, std::uint8_t* out);

// Row k of the message to row places[k] of out, or to row k if places is null.
//   adds: out += row, k ascending; rows may repeat, and Y is float.
//   else: out += weight * (row - out), where a weight of 1 overwrites; no row repeats.
template <typename Y>
void decode_rows(const std::uint8_t* message, std::int64_t count, const RowCode& code,
                 const std::int32_t* places, float weight, bool adds, Y* out);

}  // namespace distgnn
