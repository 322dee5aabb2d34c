// Algorithm: one pass over a row gives its loss and its gradient from the same exponentials.
// Formula: loss = log(sum of e^(x - max)) + max - x[label]; gradient = softmax(x) - onehot(label).
// Source: Bridle, "Probabilistic Interpretation of Feedforward Classification Network Outputs",
//   1990.
#include "cross_entropy.h"

#include <algorithm>
#include <limits>

#include "csr.h"
#include "exponential.h"
#include "isa.h"

namespace distgnn {
namespace {

using std::int64_t;

// Columns that are worked on together. Where the width is no multiple of them, the last ones
// overlap their neighbours.
constexpr int kColumns = 16;

// Keeps in half as many lanes what two of them make, until one is left.
template <typename T, typename Join>
DISTGNN_INLINE T folded(T* lanes, const Join& join) {
#pragma GCC unroll 4
  for (int half = kColumns / 2; half > 0; half /= 2) {
#pragma omp simd
    for (int j = 0; j < half; ++j) lanes[j] = join(lanes[j], lanes[j + half]);
  }
  return lanes[0];
}

template <typename T>
DISTGNN_INLINE T larger(T one, T other) {
  return other > one ? other : one;
}

// The largest of a row's values; what is no number is passed over.
template <typename T>
DISTGNN_INLINE T largest(const T* x, int64_t width) {
  T lanes[kColumns];
  for (int j = 0; j < kColumns; ++j) lanes[j] = -std::numeric_limits<T>::infinity();
  for (int64_t column = 0; column < width; column += kColumns) {
    const T* values = x + std::min(column, width - kColumns);
#pragma omp simd
    for (int j = 0; j < kColumns; ++j) lanes[j] = larger(lanes[j], values[j]);
  }
  return folded(lanes, [](T one, T other) DISTGNN_LAMBDA_INLINE { return larger(one, other); });
}

// The sum of e^(x - maximum) over a row, whose terms are left in another one, if there is one.
template <typename T>
DISTGNN_INLINE T sum_exponentials(const T* x, int64_t width, T maximum, T* terms) {
  T lanes[kColumns] = {};
  for (int64_t column = 0; column < width; column += kColumns) {
    const int64_t at = std::min(column, width - kColumns);
    const int first = static_cast<int>(column - at);
    T own[kColumns];
#pragma omp simd
    for (int j = 0; j < kColumns; ++j) {
      own[j] = exponential(x[at + j] - maximum);
      lanes[j] += j < first ? T(0) : own[j];
    }
    if (terms != nullptr) std::copy_n(own, kColumns, terms + at);
  }
  return folded(lanes, [](T one, T other) DISTGNN_LAMBDA_INLINE { return one + other; });
}

// Copies a row of fewer than kColumns values, behind which come those whose exponential is 0. Whole
// vectors are stored, because they will be loaded: where there are num_left values, the next rows'
// are read for that.
template <typename T>
DISTGNN_INLINE void pad(const T* x, int64_t width, int64_t num_left, T* out) {
  const T nothing = -std::numeric_limits<T>::infinity();
  const int last = static_cast<int>(width) - 1;
  if (num_left >= kColumns) {
#pragma omp simd
    for (int j = 0; j < kColumns; ++j) out[j] = j <= last ? x[j] : nothing;
  } else {
    for (int j = 0; j <= last; ++j) out[j] = x[j];
    for (int j = last + 1; j < kColumns; ++j) out[j] = nothing;
  }
}

template <typename T>
DISTGNN_PER_ISA void cross_entropy_rows(const T* scores, const int64_t* label, int64_t num_rows,
                                        int64_t width, T* loss, T* gradient) {
  T score[kRowsPerTask], padded[kColumns], padded_terms[kColumns];
  const bool is_narrow = width < kColumns;
  for (int64_t row = 0; row < num_rows; ++row) {
    const T* x = scores + row * width;
    T* terms = gradient != nullptr ? gradient + row * width : nullptr;
    if (is_narrow) {
      pad(x, width, (num_rows - row) * width, padded);
      x = padded;
    }
    const int64_t num_columns = is_narrow ? kColumns : width;
    const T maximum = largest(x, num_columns);
    score[row] = x[label[row]] - maximum;
    T* all = is_narrow ? padded_terms : terms;
    loss[row] = sum_exponentials(x, num_columns, maximum, all);
    if (terms == nullptr) continue;
    const T factor = T(1) / loss[row];
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) terms[j] = all[j] * factor;
    terms[label[row]] -= T(1);
  }
#pragma omp simd
  for (int64_t row = 0; row < num_rows; ++row) loss[row] = logarithm(loss[row]) - score[row];
}

}  // namespace

template <typename T>
void cross_entropy(const T* scores, const int64_t* label, int64_t num_rows, int64_t num_classes,
                   T* loss, T* gradient) {
  for_row_blocks(num_rows, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * num_classes;
    cross_entropy_rows(scores + first, label + begin, end - begin, num_classes, loss + begin,
                       gradient != nullptr ? gradient + first : nullptr);
  });
}

template void cross_entropy(const float*, const int64_t*, int64_t, int64_t, float*, float*);
template void cross_entropy(const double*, const int64_t*, int64_t, int64_t, double*, double*);

}  // namespace distgnn
