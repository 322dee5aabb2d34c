#include "codec.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

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
using std::uint8_t;

constexpr int64_t kHeaderBytes = 4;
// Magnitudes up to 2^96 are coded: sums of a row and its range then stay finite.
constexpr uint32_t kLargestBits = 0x6f800000;
// The reciprocal of a smaller unit may not be finite.
constexpr float kSmallestUnit = 0x1p-100f;
// Neighbouring rows of out belong to one thread in groups of this many; see rows.cpp.
constexpr int kOwnedRowsBits = 4;

DISTGNN_INLINE int64_t code_bytes(int64_t num_codes, int bits) {
  return (num_codes * bits + 7) / 8;
}

DISTGNN_INLINE int64_t row_bytes(int64_t width, int64_t exact_columns, int bits) {
  const int64_t num_codes = width - exact_columns;
  const int64_t header = bits == 16 || num_codes == 0 ? 0 : kHeaderBytes;
  return header + code_bytes(num_codes, bits) + 4 * exact_columns;
}

// Where row k of a message begins; bytes are those of a row where all have the same.
DISTGNN_INLINE int64_t offset_of(const RowCode& code, int64_t k, int64_t bytes) {
  return code.offsets != nullptr ? code.offsets[k] : k * bytes;
}
DISTGNN_INLINE int bits_of(const RowCode& code, int64_t k) {
  return code.bits_of_row != nullptr ? code.bits_of_row[k] : code.bits;
}

DISTGNN_INLINE uint32_t bits_of_float(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
DISTGNN_INLINE float float_of_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// To bfloat16, towards minus infinity.
DISTGNN_INLINE float rounded_down(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t away = (bits >> 31) != 0 ? 0xffffu : 0u;
  return float_of_bits((bits + away) & 0xffff0000u);
}
// A positive value to bfloat16, towards infinity.
DISTGNN_INLINE float rounded_up(float value) {
  return float_of_bits((bits_of_float(value) + 0xffffu) & 0xffff0000u);
}

// The two numbers of a header, and what else encoding needs.
struct Header {
  float first;   // low, or the lower centroid
  float second;  // unit, or the upper centroid
  float scale;   // 1 / unit, or the mean
};

// The grid of levels + 1 values from low that covers [lowest, highest].
DISTGNN_INLINE Header grid_over(float lowest, float highest, float levels) {
  // Adding 0 makes +0 of -0: which of the two is the minimum depends on the order of the lanes.
  const float low = rounded_down(lowest + 0.0f), high = highest + 0.0f;
  if (high == low) return {low, 0.0f, 0.0f};
  float unit = rounded_up(std::max((high - low) / levels, kSmallestUnit));
  // The product is exact, so this compares what is decoded.
  if (low + unit * levels < high) unit = float_of_bits(bits_of_float(unit) + 0x10000u);
  return {low, unit, 1.0f / unit};
}

DISTGNN_INLINE void store_header(const Header& header, uint8_t* out) {
  Bf16 pair[2];
  store(header.first, &pair[0]);
  store(header.second, &pair[1]);
  std::memcpy(out, pair, sizeof(pair));
}
DISTGNN_INLINE Header load_header(const uint8_t* from) {
  Bf16 pair[2];
  std::memcpy(pair, from, sizeof(pair));
  return {widen(pair[0]), widen(pair[1]), 0.0f};
}

// What is done with decoded values.
enum class Leave { kOver, kBlended, kAdded };

// The rows [begin, end) of a message that is coded.
template <typename X>
struct EncodeArgs {
  const X* x;
  const int32_t* picked;
  int64_t last_row;  // of the message
  RowCode code;
  bool is_random;
  uint64_t seed;  // mixed
  uint8_t* out;
};

// Those of one that is decoded; a row that another owns is passed over.
template <typename Y>
struct DecodeArgs {
  const uint8_t* message;
  const int32_t* places;
  int64_t last_row;  // of the message
  RowCode code;
  float weight;
  int32_t owner;
  int32_t num_owners;  // 1: all rows are the caller's
  Y* out;
};

}  // namespace
}  // namespace distgnn

#define DISTGNN_BODY "codec_pass.inc"
#include "per_isa.h"

namespace distgnn {
namespace {

template <typename X>
int64_t encode_some(const EncodeArgs<X>& args, int64_t begin, int64_t end) {
  DISTGNN_BEST(encode_some(args, begin, end));
}

template <Leave kLeave, typename Y>
void decode_some(const DecodeArgs<Y>& args, int64_t begin, int64_t end) {
  DISTGNN_BEST(decode_some<kLeave>(args, begin, end));
}

template <Leave kLeave, typename Y>
void decode_blocks(const DecodeArgs<Y>& args, int64_t count) {
  for_row_blocks(count, [&](int64_t begin, int64_t end) { decode_some<kLeave>(args, begin, end); });
}

}  // namespace

int64_t coded_row_bytes(int64_t width, int64_t exact_columns, int bits) {
  return row_bytes(width, exact_columns, bits);
}

template <typename X>
int64_t encode_rows(const X* x, const int32_t* picked, int64_t count, const RowCode& code,
                    const uint64_t* seed, uint8_t* out) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const uint64_t mixed = seed != nullptr ? mix64(*seed + 0x9e3779b97f4a7c15u) : 0;
  const EncodeArgs<X> args{x, picked, count - 1, code, seed != nullptr, mixed, out};
  std::atomic<int64_t> first_bad{kNone};
  for_row_blocks(count, [&](int64_t begin, int64_t end) {
    const int64_t bad = encode_some(args, begin, end);
    int64_t known = first_bad.load();
    while (bad >= 0 && bad < known && !first_bad.compare_exchange_weak(known, bad)) {
    }
  });
  return first_bad == kNone ? -1 : first_bad.load();
}

template <typename Y>
void decode_rows(const uint8_t* message, int64_t count, const RowCode& code, const int32_t* places,
                 float weight, bool adds, Y* out) {
  DecodeArgs<Y> args{message, places, count - 1, code, weight, 0, 1, out};
  if (adds && places != nullptr) {
#pragma omp parallel if (count > kRowsPerTask)
    {
      DecodeArgs<Y> own = args;
      own.owner = omp_get_thread_num();
      own.num_owners = omp_get_num_threads();
      decode_some<Leave::kAdded>(own, 0, count);
    }
  } else if (adds) {
    decode_blocks<Leave::kAdded>(args, count);
  } else if (weight == 1.0f) {
    decode_blocks<Leave::kOver>(args, count);
  } else {
    decode_blocks<Leave::kBlended>(args, count);
  }
}

template int64_t encode_rows(const float*, const int32_t*, int64_t, const RowCode&, const uint64_t*,
                             uint8_t*);
template int64_t encode_rows(const Bf16*, const int32_t*, int64_t, const RowCode&, const uint64_t*,
                             uint8_t*);
template void decode_rows(const uint8_t*, int64_t, const RowCode&, const int32_t*, float, bool,
                          float*);
template void decode_rows(const uint8_t*, int64_t, const RowCode&, const int32_t*, float, bool,
                          Bf16*);

}  // namespace distgnn
