// exp and log with the same bits on every instruction set.
//
// Additions, multiplications and shifts alone, in a fixed order, so that loops over them become
// vectors; the functions of libm are neither vectors nor the same on every CPU. Errors, against
// correctly rounded results: exp below 2 units in the last place, log below 3.
//
// Argument reduction as in Muller et al., "Handbook of Floating-Point Arithmetic", 2nd ed., ch. 10.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "isa.h"

namespace distgnn {

template <typename T>
struct ExpConstants;

// kRound, added and subtracted, rounds to an integer, whose low bits then stand in the low bits of
// the sum. ln 2 is kHigh + kLow, where kHigh has so few bits that integers times kHigh are exact.
// Series end where the next term is below half a unit in the last place.
template <>
struct ExpConstants<float> {
  using Bits = std::uint32_t;
  static constexpr float kRound = 0x1.8p23f;
  static constexpr float kLog2e = 0x1.715476p+0f;
  static constexpr float kHigh = 0x1.62ep-1f;
  static constexpr float kLow = 0x1.0bfbe8p-15f;
  static constexpr float kLargest = 88.37f;
  static constexpr float kSmallest = -87.33f;
  static constexpr int kMantissa = 23;
  static constexpr Bits kBias = 127;
  static constexpr int kExpTerms = 7;
  static constexpr int kLogTerms = 6;
  static constexpr Bits kSqrtHalf = 0x3f3504f3u;
};

template <>
struct ExpConstants<double> {
  using Bits = std::uint64_t;
  static constexpr double kRound = 0x1.8p52;
  static constexpr double kLog2e = 0x1.71547652b82fep+0;
  static constexpr double kHigh = 0x1.62e42fefap-1;
  static constexpr double kLow = 0x1.cf79abc9e3b3ap-40;
  static constexpr double kLargest = 709.4;
  static constexpr double kSmallest = -708.3;
  static constexpr int kMantissa = 52;
  static constexpr Bits kBias = 1023;
  static constexpr int kExpTerms = 13;
  static constexpr int kLogTerms = 12;
  static constexpr Bits kSqrtHalf = 0x3fe6a09e667f3bcdu;
};

// 1 / n!
template <typename T>
constexpr T inverse_factorial(int n) {
  double product = 1;
  for (int i = 2; i <= n; ++i) product *= i;
  return static_cast<T>(1 / product);
}

// sum * r^(n - 1) + r^(n - 2) / n! + ... + 1 / 2!, by Horner's rule. Recursion, because a loop
// inside would keep the loops over this out of vectors.
template <int n, typename T>
DISTGNN_INLINE T exponential_series(T sum, T r) {
  constexpr T kTerm = inverse_factorial<T>(n);
  const T next = sum * r + kTerm;
  if constexpr (n == 2) {
    return next;
  } else {
    return exponential_series<n - 1>(next, r);
  }
}

// e^value. 0 below kSmallest, where results would lose bits; infinity above kLargest; NaN of NaN.
template <typename T>
DISTGNN_INLINE T exponential(T value) {
  using C = ExpConstants<T>;
  const T shifted = value * C::kLog2e + C::kRound;
  const T power = shifted - C::kRound;
  const T r = (value - power * C::kHigh) - power * C::kLow;
  constexpr T kLast = inverse_factorial<T>(C::kExpTerms);
  const T series = exponential_series<C::kExpTerms - 1>(kLast, r);
  // The two largest terms last: their sum is rounded once.
  const T sum = (series * r * r + r) + T(1);
  typename C::Bits bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + C::kBias) << C::kMantissa;
  T scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  const T result = sum * scale;
  // What came of values out of range is replaced, by masks: GCC makes branches of conditionals.
  const auto is_small = static_cast<typename C::Bits>(-(value < C::kSmallest));
  const auto is_large = static_cast<typename C::Bits>(-(value > C::kLargest));
  const T infinity = std::numeric_limits<T>::infinity();
  typename C::Bits infinite;
  std::memcpy(&infinite, &infinity, sizeof(infinite));
  std::memcpy(&bits, &result, sizeof(bits));
  bits = (bits & ~(is_small | is_large)) | (infinite & is_large);
  T selected;
  std::memcpy(&selected, &bits, sizeof(selected));
  return selected;
}

// sum * square^n + 2 / (2 n + 1) * square^(n - 1) + ... + 2 / 3, by Horner's rule.
template <int n, typename T>
DISTGNN_INLINE T logarithm_series(T sum, T square) {
  const T next = sum * square + T(2) / T(2 * n + 1);
  if constexpr (n == 1) {
    return next;
  } else {
    return logarithm_series<n - 1>(next, square);
  }
}

// The natural logarithm of a positive normal number; NaN and infinity stay what they are.
template <typename T>
DISTGNN_INLINE T logarithm(T value) {
  using C = ExpConstants<T>;
  using Bits = typename C::Bits;
  Bits bits;
  std::memcpy(&bits, &value, sizeof(bits));
  // value = m * 2^power with m in [sqrt(1/2), sqrt(2)); the shift keeps the sign.
  using Signed = std::make_signed_t<Bits>;
  const Signed exponent = static_cast<Signed>(bits - C::kSqrtHalf) >> C::kMantissa;
  bits -= static_cast<Bits>(exponent) << C::kMantissa;
  const T power = static_cast<T>(exponent);
  T m;
  std::memcpy(&m, &bits, sizeof(m));
  // log(m) = 2 atanh(s), s = (m - 1) / (m + 1): 2 (s + s^3 / 3 + s^5 / 5 + ...).
  const T s = (m - T(1)) / (m + T(1));
  const T square = s * s;
  constexpr T kLast = T(2) / T(2 * C::kLogTerms + 1);
  const T sum = logarithm_series<C::kLogTerms - 1>(kLast, square);
  const T tail = sum * square * s + power * C::kLow;
  const T result = power * C::kHigh + (T(2) * s + tail);
  // By masks, as above.
  const auto is_kept = static_cast<Bits>(-!(value <= std::numeric_limits<T>::max()));
  Bits kept;
  std::memcpy(&kept, &value, sizeof(kept));
  std::memcpy(&bits, &result, sizeof(bits));
  bits = (bits & ~is_kept) | (kept & is_kept);
  T selected;
  std::memcpy(&selected, &bits, sizeof(selected));
  return selected;
}

}  // namespace distgnn
