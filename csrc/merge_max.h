// Merging maxima over different edges of the same rows: those of another block, or of another rank.
//
// Of equal values the source with the smaller id wins, so that the winner does not depend on how
// the edges were divided; a NaN beats any number. Sources are numbered over all rows that edges of
// this rank start from; -1 stands for none, and -2 - k for row k of a receive buffer.
#pragma once

#include <cstdint>

namespace distgnn {

// Maxima and their winners, (num_rows, width) each.
template <typename T>
struct Maxima {
  T* value;
  std::int32_t* source;
};

template <typename T>
struct FoundMaxima {
  const T* value;
  const std::int32_t* source;
};

// Merges what spmm_extreme found over a block whose source 0 is number first_source. Ids are
// (num_sources,). A row is empty in all columns or in none.
template <typename T>
void merge_max(const Maxima<T>& into, const FoundMaxima<T>& other, std::int64_t num_rows,
               std::int64_t width, std::int32_t first_source, const std::int64_t* id);

// Rows that arrived from other ranks: row k belongs to row row[k], and rows may repeat.
template <typename T>
struct ReceivedMaxima {
  const std::int32_t* row;  // (num_received,)
  const T* value;           // (num_received, width)
  const std::int64_t* id;   // (num_received, width), id of the winner + 1, or 0 for none
  std::int64_t num_received;
};

// Merges received rows. A destination row has one owner.
template <typename T>
void merge_received_max(const Maxima<T>& into, const ReceivedMaxima<T>& received,
                        std::int64_t width, const std::int64_t* id);

}  // namespace distgnn
