// Rows with several heads: which columns belong to which head, and how they are cut into vectors
// that belong to one head each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "isa.h"
#include "schedule.h"

namespace distgnn {

// Heads [begin, begin + count) of `all`; head h owns the columns [h * width, (h + 1) * width).
struct Heads {
  std::int64_t begin;
  std::int64_t count;
  std::int64_t all;
  std::int64_t width;

  std::int64_t columns() const { return all * width; }
};

// Heads that are worked on at a time: what is kept for each of them stays on the stack.
inline constexpr std::int64_t kMaxHeads = 16;

inline constexpr int kMaxVectors = 16;

// Vectors of 16 columns in a block of a dot product.
inline constexpr int kBlockVectors = 4;

// The columns that stay in registers while the edges of a row are walked. Vector i starts at
// start[i] and belongs to head[i], counted from Heads::begin. Its first skip[i] columns belong to
// the vector before it, which ends where a head does not end with a whole vector.
struct HeadPass {
  std::int64_t start[kMaxVectors];
  std::int64_t head[kMaxVectors];
  std::int64_t skip[kMaxVectors];
  // For dot products. They are added up block by block, and no block lies in two passes, so that
  // the order of additions does not depend on the number of registers.
  bool starts_block[kMaxVectors];
  bool ends_block[kMaxVectors];
  bool starts_head[kMaxVectors];  // the block is the first of its head
};

// Columns of a vector: as many as a head has, in steps.
inline int lanes_of(std::int64_t width) {
  return width >= 16 ? 16 : width >= 8 ? 8 : width >= 4 ? 4 : 1;
}

// Fills in the pass of num_vectors vectors that starts with vector `first` of the heads.
inline void fill_pass(const Heads& heads, std::int64_t lanes, std::int64_t first, int num_vectors,
                      HeadPass* pass) {
  const std::int64_t per_head = (heads.width + lanes - 1) / lanes;
  const std::int64_t block = lanes == 16 ? kBlockVectors : 1;
  for (int i = 0; i < num_vectors; ++i) {
    const std::int64_t head = (first + i) / per_head;
    const std::int64_t number = (first + i) % per_head;
    const std::int64_t column = std::min(number * lanes, heads.width - lanes);
    pass->start[i] = (heads.begin + head) * heads.width + column;
    pass->head[i] = head;
    pass->skip[i] = number * lanes - column;
    pass->starts_block[i] = number % block == 0;
    pass->ends_block[i] = (number + 1) % block == 0 || number + 1 == per_head;
    pass->starts_head[i] = number < block;
  }
}

// Numbers of vectors there is code for.
inline constexpr int kWidePasses[] = {16, 14, 12, 8, 7, 6, 4, 3, 2, 1};
inline constexpr int kNarrowPasses[] = {16, 8, 4, 2, 1};

// The largest number of vectors there is code for, at most `widest`, that ends with a block.
inline int pass_size(const Heads& heads, int lanes, std::int64_t first, int widest) {
  const std::int64_t per_head = (heads.width + lanes - 1) / lanes;
  const std::int64_t block = lanes == 16 ? kBlockVectors : 1;
  const auto fits = [&](int size) {
    const std::int64_t end = first + size;
    return size <= widest && end <= heads.count * per_head && end % per_head % block == 0;
  };
  if (lanes == 16) return *std::find_if(std::begin(kWidePasses), std::end(kWidePasses), fits);
  return *std::find_if(std::begin(kNarrowPasses), std::end(kNarrowPasses), fits);
}

// Calls leaf(begin, end, heads) for all segments and heads, on all threads. The heads of a row that
// is too long for one thread are divided among several.
template <typename Leaf>
void for_head_tasks(const Schedule& schedule, std::int64_t num_heads, std::int64_t width,
                    const Leaf& leaf) {
  const int num_groups = static_cast<int>(std::clamp<std::int64_t>(num_heads, 1, 8));
  for_tasks(schedule, num_groups, [&](std::int64_t begin, std::int64_t end, int part, int parts) {
    const std::int64_t last = num_heads * (part + 1) / parts;
    for (std::int64_t first = num_heads * part / parts; first < last; first += kMaxHeads) {
      leaf(begin, end, Heads{first, std::min(kMaxHeads, last - first), num_heads, width});
    }
  });
}

// Vectors, their columns, and the heads that share one.
template <int kVectors, int kLanesOf, int kHeadsOf = 1>
struct PassSize {
  static constexpr int kNumVectors = kVectors;
  static constexpr int kNumLanes = kLanesOf;
  static constexpr int kNumHeads = kHeadsOf;
};

template <int kLanesOf, typename Body>
void with_narrow_size(int size, const Body& body) {
  switch (size) {
    case 16: return body(PassSize<16, kLanesOf>{});
    case 8: return body(PassSize<8, kLanesOf>{});
    case 4: return body(PassSize<4, kLanesOf>{});
    case 2: return body(PassSize<2, kLanesOf>{});
    default: return body(PassSize<1, kLanesOf>{});
  }
}

// A double takes twice the registers.
template <typename T, typename Body>
void with_wide_size(int size, const Body& body) {
  if constexpr (sizeof(T) == 4) {
    switch (size) {
      case 16: return body(PassSize<16, 16>{});
      case 14: return body(PassSize<14, 16>{});
      case 12: return body(PassSize<12, 16>{});
    }
  }
  switch (size) {
    case 8: return body(PassSize<8, 16>{});
    case 7: return body(PassSize<7, 16>{});
    case 6: return body(PassSize<6, 16>{});
    case 4: return body(PassSize<4, 16>{});
    case 3: return body(PassSize<3, 16>{});
    case 2: return body(PassSize<2, 16>{});
    default: return body(PassSize<1, 16>{});
  }
}

// Calls body(PassSize<...>{}, pass) for passes that cover all columns of the heads.
template <typename T, typename Body>
void for_head_passes(const Heads& heads, const Body& body) {
  const int lanes = lanes_of(heads.width);
  const int registers = widest_pass() * 4 / static_cast<int>(sizeof(T)) * (16 / lanes);
  const int largest = sizeof(T) > 4 && lanes == 16 ? kMaxVectors / 2 : kMaxVectors;
  const int widest = std::clamp<int>(registers, kBlockVectors, largest);
  const std::int64_t num_vectors = heads.count * ((heads.width + lanes - 1) / lanes);
  HeadPass pass;
  for (std::int64_t first = 0; first < num_vectors;) {
    const int size = pass_size(heads, lanes, first, widest);
    fill_pass(heads, lanes, first, size, &pass);
    const auto with_pass = [&](auto chosen) { body(chosen, pass); };
    switch (lanes) {
      case 16: with_wide_size<T>(size, with_pass); break;
      case 8: with_narrow_size<8>(size, with_pass); break;
      case 4: with_narrow_size<4>(size, with_pass); break;
      default: with_narrow_size<1>(size, with_pass); break;
    }
    first += size;
  }
}

// Heads that can share a vector of 16 columns and leave no vector half empty; else 1.
inline int heads_of_vector(const Heads& heads) {
  const bool is_narrow = heads.width == 4 || heads.width == 8;
  if (!is_narrow || heads.count * heads.width % 16 != 0) return 1;
  return static_cast<int>(16 / heads.width);
}

template <int kHeadsOf, typename Body>
void with_joined_size(std::int64_t num_vectors, const Body& body) {
  if (num_vectors >= 4) return body(PassSize<4, 16, kHeadsOf>{});
  if (num_vectors >= 2) return body(PassSize<2, 16, kHeadsOf>{});
  body(PassSize<1, 16, kHeadsOf>{});
}

// As for_head_passes; narrow heads share vectors where they can. Sums of a column stay its own, so
// no bit depends on it.
template <typename T, typename Body>
void for_joined_passes(const Heads& heads, const Body& body) {
  const int heads_of = heads_of_vector(heads);
  if (heads_of == 1) return for_head_passes<T>(heads, body);
  const std::int64_t num_vectors = heads.count / heads_of;
  HeadPass pass{};
  for (std::int64_t first = 0; first < num_vectors;) {
    const auto with_pass = [&](auto size) {
      for (int i = 0; i < size.kNumVectors; ++i) {
        pass.start[i] = heads.begin * heads.width + (first + i) * 16;
        pass.head[i] = (first + i) * heads_of;
      }
      body(size, pass);
      first += size.kNumVectors;
    };
    if (heads_of == 4) with_joined_size<4>(num_vectors - first, with_pass);
    if (heads_of == 2) with_joined_size<2>(num_vectors - first, with_pass);
  }
}

}  // namespace distgnn
