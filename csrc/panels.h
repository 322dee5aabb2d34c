// Vectors of one cache line, and how columns are cut into panels of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "isa.h"
#include "number.h"

namespace distgnn {

template <typename T>
inline constexpr int kVectorLanes = 64 / sizeof(T);

DISTGNN_INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DISTGNN_INLINE double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

// Steps of a walk over entries that are taken one by one, or in pairs.
template <typename E>
DISTGNN_INLINE std::int64_t num_steps(std::int64_t num_entries) {
  return std::is_same_v<E, Pair> ? (num_entries + 1) / 2 : num_entries;
}

// Where an entry stands if pairs are taken one by one: the second of each comes first. The last of
// an odd number stays.
DISTGNN_INLINE std::int64_t swapped(std::int64_t entry, std::int64_t num_entries) {
  return (entry ^ 1) < num_entries ? entry ^ 1 : entry;
}

// While it lives, numbers too small to be normal count as 0, as they do for pairs.
class Flushing {
 public:
  explicit Flushing(bool is_on) : is_on_(is_on) {
    if (is_on_) set(get() | kFlushToZero | kDenormalsAreZero);
  }
  ~Flushing() {
    if (is_on_) set(before_);
  }
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
#if defined(__SSE2__)
  unsigned get() { return before_ = __builtin_ia32_stmxcsr(); }
  static void set(unsigned control) {
    asm volatile("" ::: "memory");
    __builtin_ia32_ldmxcsr(control);
    asm volatile("" ::: "memory");
  }
#else
  unsigned get() { return 0; }
  static void set(unsigned) {}
#endif
  unsigned before_ = 0;
  bool is_on_;
};

// Panels are two vectors wide; the last one has one, two or three. The values of a panel lie row
// by row, those of the panel at `column` start at column * depth.
inline constexpr int kPanelVectors = 2;
inline constexpr int kMaxPanelVectors = 3;

template <typename T>
inline int panel_vectors(std::int64_t width, std::int64_t column) {
  const std::int64_t left = (width - column + kVectorLanes<T> - 1) / kVectorLanes<T>;
  return left <= kMaxPanelVectors ? static_cast<int>(left) : kPanelVectors;
}

// Columns with those that pad the last vector.
template <typename T>
inline std::int64_t padded(std::int64_t width) {
  return (width + kVectorLanes<T> - 1) / kVectorLanes<T> * kVectorLanes<T>;
}

// Values from one row that is copied to the next: a line more than the row, so that rows do not
// share sets of the first cache.
template <typename T>
inline std::int64_t stride(std::int64_t width) {
  return padded<T>(width) + kVectorLanes<T>;
}

}  // namespace distgnn
