// Arrays of the partitioner: views of what Python owns, and arrays that a function makes.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

namespace distgnn {

// A view of numbers that somebody else owns.
template <typename T>
struct Array {
  T* data = nullptr;
  std::int64_t size = 0;

  T& operator[](std::int64_t i) const { return data[i]; }
  T* begin() const { return data; }
  T* end() const { return data + size; }
  void fill(T value) const { std::fill(data, data + size, value); }
};

template <typename T>
using In = Array<const T>;

// Asks for pages of 2 MiB, as NumPy does for its arrays: what is written all over an array else waits
// for the table of pages. A wish that may not be granted.
inline void ask_for_large_pages(void* data, std::size_t bytes) {
  constexpr std::size_t kLarge = std::size_t{1} << 22;
#ifdef MADV_HUGEPAGE
  if (bytes < kLarge) return;
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t skipped = page - reinterpret_cast<std::uintptr_t>(data) % page;
  madvise(static_cast<char*>(data) + skipped, bytes - skipped, MADV_HUGEPAGE);
#endif
}

// Numbers that a function makes and its caller owns; undefined until they are written.
template <typename T>
class Made {
 public:
  explicit Made(std::int64_t size = 0)
      : data_(std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(size))), size_(size) {
    ask_for_large_pages(data_.get(), sizeof(T) * static_cast<std::size_t>(size));
  }
  Made(std::int64_t size, T value) : Made(size) { view().fill(value); }

  T& operator[](std::int64_t i) { return data_[static_cast<std::size_t>(i)]; }
  std::int64_t size() const { return size_; }
  Array<T> view() { return {data_.get(), size_}; }
  In<T> read() const { return {data_.get(), size_}; }
  T* release() { return data_.release(); }
  // The first numbers, in memory of their own: the rest is freed.
  Made shrunk(std::int64_t size) {
    if (size == size_) return std::move(*this);
    Made less(size);
    std::copy_n(data_.get(), size, less.data_.get());
    return less;
  }

 private:
  std::unique_ptr<T[]> data_;
  std::int64_t size_;
};

constexpr int kWordBits = 64;
// So many numbers that lie all over memory are fetched before they are needed.
constexpr std::int64_t kAhead = 32;

// A set of parts, or of clusters, for each of many vertices: one bit each.
struct Sets {
  std::uint64_t* data = nullptr;
  std::int64_t num_words = 0;

  std::uint64_t* row(std::int64_t at) const { return data + at * num_words; }
  std::uint64_t bit(std::int64_t at, std::int64_t part) const {
    return row(at)[part >> 6] >> (part & 63) & 1;
  }
  bool has(std::int64_t at, std::int64_t part) const { return bit(at, part) != 0; }
  void put(std::int64_t at, std::int64_t part) const {
    row(at)[part >> 6] |= std::uint64_t{1} << (part & 63);
  }
  // Adds a part beside other threads that do; whether it was not there.
  bool put_first(std::int64_t at, std::int64_t part) const {
    const std::uint64_t bit = std::uint64_t{1} << (part & 63);
    const std::atomic_ref<std::uint64_t> word(row(at)[part >> 6]);
    // Most are there: to look takes no turns with other cores.
    if ((word.load(std::memory_order_relaxed) & bit) != 0) return false;
    return (word.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
  }
  void drop(std::int64_t at, std::int64_t part) const {
    row(at)[part >> 6] &= ~(std::uint64_t{1} << (part & 63));
  }
};

// The place of the smallest number, the first of equal ones.
template <typename T>
std::int64_t least_at(const Array<T>& values) {
  return std::min_element(values.begin(), values.end()) - values.begin();
}
template <typename T>
T most_of(const Array<T>& values) {
  return *std::max_element(values.begin(), values.end());
}

}  // namespace distgnn
