// Algorithm: numbers are thrown into piles by their highest bits, until a pile fits into a cache;
//   there they are sorted by counting, from the lowest digit to the highest.
// Source: Knuth, The Art of Computer Programming 3, 5.2.5 (sorting by distribution).
#include "partition_sort.h"

#include <array>
#include <bit>
#include <utility>

namespace distgnn {
namespace {

using std::int64_t;
using std::uint64_t;

// Bits of the digit that piles are made by, and the most of those that are counted by in a cache.
constexpr int kPileBits = 11, kDigitBits = 9;
// Numbers that comparing sorts as fast, and those that fit into a cache twice.
constexpr int64_t kFew = 64, kInCache = 1 << 14;

struct Range {
  uint64_t least;
  // Of the largest number less the least.
  int bits;
};

Range range_of(const int64_t* numbers, int64_t size) {
  const auto [least, most] = std::minmax_element(numbers, numbers + size);
  const uint64_t first = static_cast<uint64_t>(*least);
  return {first, static_cast<int>(std::bit_width(static_cast<uint64_t>(*most) - first))};
}

uint64_t digit(int64_t number, const Range& range, int shift, int bits) {
  return (static_cast<uint64_t>(number) - range.least) >> shift & ((uint64_t{1} << bits) - 1);
}

// Writes numbers by a digit, those with the same one in their order; returns where each begins.
template <int kBits>
std::array<int64_t, (1 << kBits) + 1> distribute(const int64_t* from, int64_t size, int64_t* to,
                                                 const Range& range, int shift, int bits) {
  std::array<int64_t, (1 << kBits) + 1> start{};
  for (int64_t i = 0; i < size; ++i) ++start[digit(from[i], range, shift, bits) + 1];
  for (std::size_t k = 1; k < start.size(); ++k) start[k] += start[k - 1];
  auto place = start;
  for (int64_t i = 0; i < size; ++i) to[place[digit(from[i], range, shift, bits)]++] = from[i];
  return start;
}

void sort_in_cache(int64_t* numbers, int64_t size, int64_t* spare, const Range& range) {
  const int passes = (range.bits + kDigitBits - 1) / kDigitBits;
  int64_t *from = numbers, *to = spare;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = range.bits * pass / passes, next = range.bits * (pass + 1) / passes;
    distribute<kDigitBits>(from, size, to, range, shift, next - shift);
    std::swap(from, to);
  }
  if (from != numbers) std::copy_n(from, size, numbers);
}

void sort_range(int64_t* numbers, int64_t size, int64_t* spare) {
  if (size <= kFew) {
    std::sort(numbers, numbers + size);
    return;
  }
  const Range range = range_of(numbers, size);
  if (range.bits == 0) return;
  if (size <= kInCache) {
    sort_in_cache(numbers, size, spare, range);
    return;
  }
  const int bits = std::min(range.bits, kPileBits), shift = range.bits - bits;
  const auto start = distribute<kPileBits>(numbers, size, spare, range, shift, bits);
  for (std::size_t pile = 0; pile + 1 < start.size(); ++pile) {
    const int64_t begin = start[pile], count = start[pile + 1] - begin;
    if (count == 0) continue;
    if (shift > 0) sort_range(spare + begin, count, numbers + begin);
    std::copy_n(spare + begin, count, numbers + begin);
  }
}

}  // namespace

void sort_numbers(Array<int64_t> values) {
  Made<int64_t> spare(values.size);
  sort_range(values.data, values.size, spare.view().data);
}

}  // namespace distgnn
