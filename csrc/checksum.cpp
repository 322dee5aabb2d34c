// Algorithm: three streams of 8 bytes a step, or tables of 8 bytes a step; pieces are joined.
// Formula: the remainder of the bytes, as a polynomial over bits, by 0x1EDC6F41.
// Source: Castagnoli et al., "Optimization of cyclic redundancy-check codes with 24 and 32 parity
// bits", IEEE Trans. Comm. 1993; Gopal et al., "Fast CRC computation", Intel 2011, for the streams.
#include "checksum.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace distgnn {
namespace {

using std::int64_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;

// Bit 31 is the coefficient of x^0: bytes are read from their lowest bit on.
constexpr uint32_t kPolynomial = 0x82f63b78;
constexpr uint32_t kOne = 0x80000000;

// Bytes of a stream before the three are joined. From memory, long ones are twice as fast: each is
// read ahead over whole pages. What is left takes short ones.
constexpr int64_t kLongBytes = 32768;
constexpr int64_t kShortBytes = 1024;
// Below, another thread costs more than it saves.
constexpr int64_t kThreadBytes = 1 << 17;

// a * b modulo the polynomial.
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

// x^(8 num_bytes): what a remainder is multiplied by when so many bytes follow.
constexpr uint32_t shift_of(int64_t num_bytes) {
  uint32_t power = kOne >> 8;
  uint32_t product = kOne;
  for (; num_bytes > 0; num_bytes >>= 1) {
    if ((num_bytes & 1) != 0) product = multiply(product, power);
    power = multiply(power, power);
  }
  return product;
}

template <std::size_t kNumTables>
using Tables = std::array<std::array<uint32_t, 256>, kNumTables>;

// Products with a shift, by the value and the place of a byte.
constexpr Tables<4> products_with(uint32_t shift) {
  Tables<4> tables{};
  for (uint32_t place = 0; place < 4; ++place) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      tables[place][byte] = multiply(byte << (8 * place), shift);
    }
  }
  return tables;
}

// Remainders of a byte that this many others follow.
constexpr Tables<8> remainders() {
  Tables<8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    tables[0][byte] = multiply(byte, kOne >> 8);
    for (std::size_t place = 1; place < 8; ++place) {
      tables[place][byte] = multiply(tables[place - 1][byte], kOne >> 8);
    }
  }
  return tables;
}

constexpr Tables<4> kPastLong = products_with(shift_of(kLongBytes));
constexpr Tables<4> kPastShort = products_with(shift_of(kShortBytes));
constexpr Tables<8> kRemainders = remainders();

DISTGNN_INLINE uint64_t load_word(const uint8_t* data) {
  uint64_t word;
  std::memcpy(&word, data, sizeof word);
  return word;
}

DISTGNN_INLINE uint32_t product(const Tables<4>& tables, uint32_t crc) {
  return tables[0][crc & 255] ^ tables[1][(crc >> 8) & 255] ^ tables[2][(crc >> 16) & 255] ^
         tables[3][crc >> 24];
}

}  // namespace
}  // namespace distgnn

#define DISTGNN_BODY "checksum_pass.inc"
#include "per_isa.h"

namespace distgnn {
namespace {

// The remainder of bytes behind those with the remainder crc.
uint32_t remainder(const uint8_t* data, int64_t num_bytes, uint32_t crc) {
  DISTGNN_BEST(add_bytes(data, num_bytes, crc));
}

}  // namespace

uint32_t crc32c(const uint8_t* data, int64_t num_bytes) {
  const int64_t num_parts = std::clamp<int64_t>(num_bytes / kThreadBytes, 1, num_threads());
  // Remainders are linear: each part counts for itself, shifted past the bytes behind it.
  uint32_t found = 0;
#pragma omp parallel for reduction(^ : found) if (num_parts > 1)
  for (int64_t part = 0; part < num_parts; ++part) {
    const int64_t begin = num_bytes * part / num_parts;
    const int64_t end = num_bytes * (part + 1) / num_parts;
    const uint32_t crc = remainder(data + begin, end - begin, part == 0 ? ~uint32_t{0} : 0);
    found ^= part == num_parts - 1 ? crc : multiply(crc, shift_of(num_bytes - end));
  }
  return ~found;
}

}  // namespace distgnn
