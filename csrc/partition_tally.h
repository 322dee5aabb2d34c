// Sums of weights by group, for the links of one vertex or cluster after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace distgnn {

// Open addressing in a power of two of slots, of which no more than half are taken.
class Tally {
 public:
  static constexpr std::int32_t kFree = -1;

  Tally() : entries_(kFewSlots), mask_(kFewSlots - 1) {}

  struct Entry {
    std::int32_t group = kFree;
    std::int64_t total = 0;
  };

  void add(std::int32_t group, std::int64_t weight) {
    std::size_t slot = find(group);
    if (entries_[slot].group == kFree) {
      if (2 * (taken_.size() + 1) > mask_ + 1) {
        grow();
        slot = find(group);
      }
      entries_[slot].group = group;
      taken_.push_back(slot);
    }
    entries_[slot].total += weight;
  }
  std::int64_t of(std::int32_t group) const {
    const Entry& entry = entries_[find(group)];
    return entry.group == kFree ? 0 : entry.total;
  }
  // Visits the groups in the order in which they came, and forgets them.
  template <typename Visit>
  void drain(Visit&& visit) {
    for (const std::size_t slot : taken_) {
      visit(entries_[slot].group, entries_[slot].total);
      entries_[slot] = {};
    }
    taken_.clear();
    // A row with few links stays in the innermost cache after one with many, and that of a hub
    // leaves no large table behind.
    mask_ = kFewSlots - 1;
    if (entries_.size() > kManySlots) *this = Tally();
  }

 private:
  static constexpr std::size_t kFewSlots = 256, kManySlots = 1 << 20;

  std::size_t find(std::int32_t group) const {
    // Knuth's multiplicative hashing.
    std::size_t slot =
        static_cast<std::size_t>(static_cast<std::uint64_t>(group) * 0x9E3779B97F4A7C15u >> 32) &
        mask_;
    while (entries_[slot].group != group && entries_[slot].group != kFree) slot = (slot + 1) & mask_;
    return slot;
  }
  void grow() {
    std::vector<Entry> kept;
    for (const std::size_t slot : taken_) {
      kept.push_back(entries_[slot]);
      entries_[slot] = {};
    }
    mask_ = 2 * mask_ + 1;
    if (entries_.size() <= mask_) entries_.resize(mask_ + 1);
    taken_.clear();
    for (const Entry& entry : kept) {
      const std::size_t slot = find(entry.group);
      entries_[slot] = entry;
      taken_.push_back(slot);
    }
  }

  std::vector<Entry> entries_;
  std::vector<std::size_t> taken_;
  std::size_t mask_;
};

}  // namespace distgnn
