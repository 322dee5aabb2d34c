// Algorithm: maxima over other edges of the same rows are merged entry by entry.
// Formula: the larger value wins; of equal ones the source with the smaller global id.
// Source: ours; a total order makes the winner the same for any partition.
#include "merge_max.h"

#include "csr.h"
#include "isa.h"

#include <omp.h>

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// Neighbouring rows belong to one thread in groups of 16, as in scatter_add_rows.
constexpr int kOwnedRowsBits = 4;

template <typename T>
DISTGNN_INLINE bool is_larger(T value, T than) {
  return (value > than) | ((value != value) & (than == than));
}

template <typename T>
DISTGNN_INLINE bool is_equal(T a, T b) {
  return (a == b) | ((a != a) & (b != b));
}

template <typename T>
DISTGNN_PER_ISA void merge_rows(const Maxima<T>& into, const FoundMaxima<T>& other, int64_t begin,
                                int64_t end, int64_t width, int32_t first_source,
                                const int64_t* id) {
  for (int64_t row = begin; row < end; ++row) {
    T* value = into.value + row * width;
    int32_t* source = into.source + row * width;
    const T* new_value = other.value + row * width;
    const int32_t* new_source = other.source + row * width;
    if (new_source[0] < 0) continue;
    const bool is_empty = source[0] == -1;
    int num_ties = 0;
#pragma omp simd reduction(+ : num_ties)
    for (int64_t j = 0; j < width; ++j) num_ties += is_equal(new_value[j], value[j]);
    if (num_ties > 0 && !is_empty) {
      for (int64_t j = 0; j < width; ++j) {
        if (!is_equal(new_value[j], value[j])) continue;
        if (id[new_source[j] + first_source] < id[source[j]]) {
          source[j] = new_source[j] + first_source;
        }
      }
    }
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) {
      const bool wins = is_empty | is_larger(new_value[j], value[j]);
      value[j] = wins ? new_value[j] : value[j];
      source[j] = wins ? new_source[j] + first_source : source[j];
    }
  }
}

template <typename T>
void merge_owned(const Maxima<T>& into, const ReceivedMaxima<T>& received, int64_t width,
                 const int64_t* id, int32_t owner, int32_t num_owners) {
  for (int64_t k = 0; k < received.num_received; ++k) {
    const int64_t row = received.row[k];
    if ((row >> kOwnedRowsBits) % num_owners != owner) continue;
    T* value = into.value + row * width;
    int32_t* source = into.source + row * width;
    for (int64_t j = 0; j < width; ++j) {
      const T new_value = received.value[k * width + j];
      const int64_t new_id = received.id[k * width + j];
      if (new_id == 0) continue;
      bool wins = source[j] == -1 || is_larger(new_value, value[j]);
      if (!wins && is_equal(new_value, value[j])) {
        const int64_t before = -2 - static_cast<int64_t>(source[j]);
        const int64_t old_id =
            source[j] >= 0 ? id[source[j]] + 1 : received.id[before * width + j];
        wins = new_id < old_id;
      }
      if (!wins) continue;
      value[j] = new_value;
      source[j] = static_cast<int32_t>(-2 - k);
    }
  }
}

}  // namespace

template <typename T>
void merge_max(const Maxima<T>& into, const FoundMaxima<T>& other, int64_t num_rows,
               int64_t width, int32_t first_source, const int64_t* id) {
  if (width == 0) return;
  for_row_blocks(num_rows, [&](int64_t begin, int64_t end) {
    merge_rows(into, other, begin, end, width, first_source, id);
  });
}

template <typename T>
void merge_received_max(const Maxima<T>& into, const ReceivedMaxima<T>& received, int64_t width,
                        const int64_t* id) {
#pragma omp parallel if (received.num_received > kRowsPerTask)
  merge_owned(into, received, width, id, omp_get_thread_num(), omp_get_num_threads());
}

#define DISTGNN_MERGE(T)                                                                          \
  template void merge_max(const Maxima<T>&, const FoundMaxima<T>&, int64_t, int64_t, int32_t,    \
                          const int64_t*);                                                        \
  template void merge_received_max(const Maxima<T>&, const ReceivedMaxima<T>&, int64_t,           \
                                   const int64_t*);
DISTGNN_MERGE(float)
DISTGNN_MERGE(double)
#undef DISTGNN_MERGE

}  // namespace distgnn
