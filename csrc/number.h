// Numbers as they lie in memory and as they are computed with.
#pragma once

#include <cstdint>
#include <cstring>

#include "isa.h"

namespace distgnn {

// bfloat16: the upper half of a float.
struct Bf16 {
  std::uint16_t bits;
};

// Two of them, the first in the lower half.
struct Pair {
  std::uint32_t bits;
};

DISTGNN_INLINE Pair pair_of(Bf16 first, Bf16 second) {
  return {first.bits | static_cast<std::uint32_t>(second.bits) << 16};
}

DISTGNN_INLINE float widen(Bf16 value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}
DISTGNN_INLINE float widen(float value) { return value; }
DISTGNN_INLINE double widen(double value) { return value; }

// Rounds to the nearest, ties to even; a NaN stays one. Equal to torch's conversion.
DISTGNN_INLINE void store(float value, Bf16* to) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  to->bits = static_cast<std::uint16_t>(value != value ? 0x7fc0u : rounded);
}
DISTGNN_INLINE void store(float value, float* to) { *to = value; }
DISTGNN_INLINE void store(double value, double* to) { *to = value; }

}  // namespace distgnn
