// The rule by which dropout keeps values: a hash of (seed, row key, column). See dropout.h.
#pragma once

#include <cstdint>

#include "isa.h"

namespace distgnn {

template <typename T>
struct MaskRule {
  std::uint64_t seed;       // mixed once
  std::uint32_t threshold;  // hashes below it are dropped
  T scale;
};

// The output function of SplitMix64.
DISTGNN_INLINE std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

DISTGNN_INLINE std::uint64_t row_bits(std::uint64_t mixed_seed, std::int64_t row_key) {
  return mix64(mixed_seed + static_cast<std::uint64_t>(row_key) * 0x9e3779b97f4a7c15u);
}

// Two multiply-xorshift rounds (constants of Wellons, "Prospecting for Hash Functions", 2018). One
// half of the row's bits enters before and the other between them: with the first alone, rows
// whose bits are close would hold the same values in another order.
DISTGNN_INLINE std::uint32_t column_hash(std::uint64_t bits, std::uint32_t column) {
  std::uint32_t h = column * 0x9e3779b9u + static_cast<std::uint32_t>(bits);
  h = (h ^ (h >> 16)) * 0x21f0aaadu;
  h += static_cast<std::uint32_t>(bits >> 32);
  h = (h ^ (h >> 15)) * 0x735a2d97u;
  return h ^ (h >> 15);
}

// What a value is multiplied with: 0 where it is dropped, else the scale.
template <typename T>
DISTGNN_INLINE T mask_factor(const MaskRule<T>& rule, std::uint64_t bits, std::int64_t column) {
  const bool is_kept = column_hash(bits, static_cast<std::uint32_t>(column)) >= rule.threshold;
  return is_kept ? rule.scale : T(0);
}

template <typename T>
MaskRule<T> make_mask_rule(std::uint64_t seed, double probability) {
  return {mix64(seed + 0x9e3779b97f4a7c15u), static_cast<std::uint32_t>(probability * 4294967296.0),
          static_cast<T>(1.0 / (1.0 - probability))};
}

}  // namespace distgnn
