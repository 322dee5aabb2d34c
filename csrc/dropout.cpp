#include "dropout.h"

#include "csr.h"
#include "isa.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint32_t;
using std::uint64_t;

// Entries per block of dropout_values: 128 rows of a block of dropout() at width 32.
constexpr int64_t kValuesPerRow = 32;

template <typename T>
struct Rule {
  uint64_t seed;       // mixed once
  uint32_t threshold;  // hashes below it are dropped
  T scale;
};

// The output function of SplitMix64.
DISTGNN_INLINE uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

DISTGNN_INLINE uint64_t row_bits(uint64_t mixed_seed, int64_t row_key) {
  return mix64(mixed_seed + static_cast<uint64_t>(row_key) * 0x9e3779b97f4a7c15u);
}

// Two multiply-xorshift rounds (constants of Wellons, "Prospecting for Hash Functions", 2018). One
// half of the row's bits enters before and the other between them: with the first alone, rows
// whose bits are close would hold the same values in another order.
DISTGNN_INLINE uint32_t column_hash(uint64_t bits, uint32_t column) {
  uint32_t h = column * 0x9e3779b9u + static_cast<uint32_t>(bits);
  h = (h ^ (h >> 16)) * 0x21f0aaadu;
  h += static_cast<uint32_t>(bits >> 32);
  h = (h ^ (h >> 15)) * 0x735a2d97u;
  return h ^ (h >> 15);
}

template <typename T>
Rule<T> make_rule(uint64_t seed, double probability) {
  return {mix64(seed + 0x9e3779b97f4a7c15u), static_cast<uint32_t>(probability * 4294967296.0),
          static_cast<T>(1.0 / (1.0 - probability))};
}

template <typename T>
DISTGNN_PER_ISA void drop_rows(const Rule<T>& rule, const T* x, const int64_t* row_key,
                               int64_t width, int64_t begin, int64_t end, T* out) {
  for (int64_t row = begin; row < end; ++row) {
    const uint64_t bits = row_bits(rule.seed, row_key[row]);
    const T* from = x + row * width;
    T* to = out + row * width;
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) {
      const bool is_kept = column_hash(bits, static_cast<uint32_t>(j)) >= rule.threshold;
      const T scaled = from[j] * rule.scale;
      to[j] = is_kept ? scaled : T(0);
    }
  }
}

template <typename T>
DISTGNN_PER_ISA void drop_values(const Rule<T>& rule, const T* values, const int64_t* row_key,
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

template <typename T>
void dropout(const T* x, const int64_t* row_key, int64_t num_rows, int64_t width, uint64_t seed,
             double probability, T* out) {
  const Rule<T> rule = make_rule<T>(seed, probability);
  for_row_blocks(num_rows, [&](int64_t begin, int64_t end) {
    drop_rows(rule, x, row_key, width, begin, end, out);
  });
}

template <typename T>
void dropout_values(const T* values, const int64_t* row_key, const int32_t* column,
                    int64_t num_values, uint64_t seed, double probability, T* out) {
  const Rule<T> rule = make_rule<T>(seed, probability);
  const int64_t num_blocks = (num_values + kValuesPerRow - 1) / kValuesPerRow;
  for_row_blocks(num_blocks, [&](int64_t begin, int64_t end) {
    drop_values(rule, values, row_key, column, begin * kValuesPerRow,
                std::min(num_values, end * kValuesPerRow), out);
  });
}

template void dropout(const float*, const int64_t*, int64_t, int64_t, uint64_t, double, float*);
template void dropout(const double*, const int64_t*, int64_t, int64_t, uint64_t, double, double*);
template void dropout_values(const float*, const int64_t*, const int32_t*, int64_t, uint64_t,
                             double, float*);
template void dropout_values(const double*, const int64_t*, const int32_t*, int64_t, uint64_t,
                             double, double*);

}  // namespace distgnn
