// Algorithm: the source rows of spmm_sum are read in its order, with its prefetching, and added
//   up.
// Formula: time >= bytes of all source rows / rate of reading them.
// Source: Williams, Waterman and Patterson, "Roofline", 2009.
#include "roof.h"

#include "isa.h"
#include "passes.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

// Sums kept apart, so that no addition waits for the one before.
constexpr int kSums = 4;

template <int kVectors>
DISTGNN_PER_ISA void read_pass(const Schedule& schedule, const float* x, int64_t width,
                               int64_t begin, int64_t end, Pass pass, float* out) {
  const int32_t* indices = schedule.indices;
  const int64_t wanted = prefetch_distance(width * 4);
  const int64_t first = schedule.begin[begin];
  const int64_t last = schedule.begin[end];
  const int64_t distance = schedule.distance(last, wanted);
  const int64_t last_column = column_beyond(x, width, pass.last + kLanes);
  x += pass.column;
  float total[kSums * kLanes] = {};
  for (int64_t k = first; k < last; ++k) {
    const float* coming = x + indices[k + distance] * width;
    for (int j = 0; j < kVectors * kLanes; j += kLanes) __builtin_prefetch(coming + j);
    if (last_column != 0) __builtin_prefetch(coming + last_column);
    const float* source = x + indices[k] * width;
    for (int i = 0; i < kVectors; ++i) {
      const float* vector = source + (i == kVectors - 1 ? pass.last : i * kLanes);
#pragma omp simd
      for (int j = 0; j < kLanes; ++j) total[(i % kSums) * kLanes + j] += vector[j];
    }
  }
  for (int j = 0; j < kSums * kLanes; ++j) out[j % kLanes] += total[j];
}

}  // namespace

void gather_roof(const CsrView& graph, const WalkOrderView& walk, const float* x, int64_t width,
                 float* out) {
  const Schedule schedule(graph, walk);
  const int widest = std::max(widest_pass(), 2);
  for_tasks(schedule, 1, [&](int64_t begin, int64_t end, int, int) {
    float* sums = out + schedule.segment(begin).row * kLanes;
    for (int64_t column = 0; column < width;) {
      const Pass pass = pass_at(width, column, widest);
      column += pass.last + kLanes;
      switch (pass.num_vectors) {
        case 1: read_pass<1>(schedule, x, width, begin, end, pass, sums); break;
        case 2: read_pass<2>(schedule, x, width, begin, end, pass, sums); break;
        case 3: read_pass<3>(schedule, x, width, begin, end, pass, sums); break;
        case 4: read_pass<4>(schedule, x, width, begin, end, pass, sums); break;
        case 5: read_pass<5>(schedule, x, width, begin, end, pass, sums); break;
        case 6: read_pass<6>(schedule, x, width, begin, end, pass, sums); break;
        case 7: read_pass<7>(schedule, x, width, begin, end, pass, sums); break;
        case 8: read_pass<8>(schedule, x, width, begin, end, pass, sums); break;
        case 12: read_pass<12>(schedule, x, width, begin, end, pass, sums); break;
        default: read_pass<16>(schedule, x, width, begin, end, pass, sums); break;
      }
    }
  });
}

}  // namespace distgnn
