// Rows as products find them in memory and leave them there: of the type that is computed with, or
// of bfloat16, which is widened a few rows at a time so that nothing behind that knows of it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isa.h"
#include "number.h"

namespace distgnn {

// T is float or double, const where rows are only read.
template <typename T>
struct Stored {
  using Narrow = std::conditional_t<std::is_const_v<T>, const Bf16, Bf16>;
  T* wide;         // one of the two is null, or both
  Narrow* narrow;  // for float only

  DISTGNN_INLINE bool is_narrow() const {
    return sizeof(T) == sizeof(float) && narrow != nullptr;
  }
  DISTGNN_INLINE bool is_here() const { return wide != nullptr || narrow != nullptr; }
  DISTGNN_INLINE Stored<const T> read() const { return {wide, narrow}; }
};

// A row as it lies in memory, or widened into scratch.
template <typename T>
DISTGNN_INLINE const T* widened(const Stored<const T>& rows, std::int64_t row, std::int64_t width,
                                T* scratch) {
  if (!rows.is_narrow()) return rows.wide + row * width;
  const Bf16* from = rows.narrow + row * width;
#pragma omp simd
  for (std::int64_t j = 0; j < width; ++j) scratch[j] = widen(from[j]);
  return scratch;
}

// A row of bfloat16 whose pairs are taken one by one, the second of each first.
template <typename T>
DISTGNN_INLINE void widen_swapped(const Bf16* from, std::int64_t width, T* to) {
  const std::int64_t num_whole = width / 2;
#pragma omp simd
  for (std::int64_t j = 0; j < num_whole; ++j) {
    to[2 * j] = widen(from[2 * j + 1]);
    to[2 * j + 1] = widen(from[2 * j]);
  }
  if (width % 2 != 0) to[width - 1] = widen(from[width - 1]);
}

// Where a value lies, whatever its type, and the bytes that one takes.
template <typename T>
DISTGNN_INLINE const char* place_of(const Stored<T>& rows, std::int64_t at) {
  if (rows.is_narrow()) return reinterpret_cast<const char*>(rows.narrow + at);
  return reinterpret_cast<const char*>(rows.wide + at);
}
template <typename T>
DISTGNN_INLINE std::int64_t value_bytes(const Stored<T>& rows) {
  return rows.is_narrow() ? sizeof(Bf16) : sizeof(T);
}

}  // namespace distgnn
