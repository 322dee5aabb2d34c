// Algorithm: a counter-based hash of (seed, row key, column) decides on each entry.
// Formula: out = x / (1 - p) where hash >= p * 2^32, else 0.
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
#include "dropout.h"

#include "csr.h"
#include "isa.h"
#include "mask.h"
#include "number.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint32_t;
using std::uint64_t;

// Entries per block of dropout_values: 128 rows of a block of dropout() at width 32.
constexpr int64_t kValuesPerRow = 32;

template <typename T, typename X, typename Y>
DISTGNN_PER_ISA void drop_rows(const MaskRule<T>& rule, const X* x, const int64_t* row_key,
                               int64_t width, int64_t begin, int64_t end, Y* out) {
  for (int64_t row = begin; row < end; ++row) {
    const uint64_t bits = row_bits(rule.seed, row_key[row]);
    const X* from = x + row * width;
    Y* to = out + row * width;
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) {
      const bool is_kept = column_hash(bits, static_cast<uint32_t>(j)) >= rule.threshold;
      const T scaled = widen(from[j]) * rule.scale;
      store(is_kept ? scaled : T(0), to + j);
    }
  }
}

template <typename T>
DISTGNN_PER_ISA void drop_values(const MaskRule<T>& rule, const T* values, const int64_t* row_key,
                                 const int32_t* column, int64_t begin, int64_t end, T* out) {
#pragma omp simd
  for (int64_t e = begin; e < end; ++e) {
    const uint64_t bits = row_bits(rule.seed, row_key[e]);
    const bool is_kept = column_hash(bits, static_cast<uint32_t>(column[e])) >= rule.threshold;
    const T scaled = values[e] * rule.scale;
    out[e] = is_kept ? scaled : T(0);
  }
}

}  // namespace

template <typename X, typename Y>
void dropout(const X* x, const int64_t* row_key, int64_t num_rows, int64_t width, uint64_t seed,
             double probability, Y* out) {
  using T = decltype(widen(X{}));
  const MaskRule<T> rule = make_mask_rule<T>(seed, probability);
  for_row_blocks(num_rows, [&](int64_t begin, int64_t end) {
    drop_rows(rule, x, row_key, width, begin, end, out);
  });
}

template <typename T>
void dropout_values(const T* values, const int64_t* row_key, const int32_t* column,
                    int64_t num_values, uint64_t seed, double probability, T* out) {
  const MaskRule<T> rule = make_mask_rule<T>(seed, probability);
  const int64_t num_blocks = (num_values + kValuesPerRow - 1) / kValuesPerRow;
  for_row_blocks(num_blocks, [&](int64_t begin, int64_t end) {
    drop_values(rule, values, row_key, column, begin * kValuesPerRow,
                std::min(num_values, end * kValuesPerRow), out);
  });
}

template void dropout(const float*, const int64_t*, int64_t, int64_t, uint64_t, double, float*);
template void dropout(const double*, const int64_t*, int64_t, int64_t, uint64_t, double, double*);
template void dropout(const Bf16*, const int64_t*, int64_t, int64_t, uint64_t, double, Bf16*);
template void dropout(const float*, const int64_t*, int64_t, int64_t, uint64_t, double, Bf16*);
template void dropout_values(const float*, const int64_t*, const int32_t*, int64_t, uint64_t,
                             double, float*);
template void dropout_values(const double*, const int64_t*, const int32_t*, int64_t, uint64_t,
                             double, double*);

}  // namespace distgnn
