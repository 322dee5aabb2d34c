// Cross-entropy of softmax: the loss of vertices that belong to one of several classes.
#pragma once

#include <cstdint>

namespace distgnn {

// loss[i] = -log(softmax(scores[i])[label[i]]), and its gradient[i] = softmax(scores[i]), less 1 at
// label[i]. scores and gradient are (num_rows, num_classes), and different; gradient may be null.
// Every label is one of the classes. Threads own rows; sums over a row take 16 columns at a time
// and are folded in half, so that the bits are the same for any number of threads and any
// instruction set.
template <typename T>
void cross_entropy(const T* scores, const std::int64_t* label, std::int64_t num_rows,
                   std::int64_t num_classes, T* loss, T* gradient);

}  // namespace distgnn
