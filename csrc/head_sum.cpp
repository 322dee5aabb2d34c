// Algorithm: sums of the columns of a few heads stay in registers while a row's edges are walked.
// Formula: out[v, h] = sum over k in row v of weight[k, h] * x[indices[k], h].
// Source: Velickovic et al., ICLR 2018, for what it serves.
#include "head_sum.h"

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "isa.h"
#include "number.h"
#include "passes.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

}  // namespace
}  // namespace distgnn

#define DISTGNN_BODY "head_sum_pass.inc"
#include "per_isa.h"

namespace distgnn {
namespace {

template <int kVectors, int kColumns, int kHeadsOf, typename X, typename T>
void sum_head_pass(const HeadSumArgs<X, T>& a, const Stretch& stretch,
                   const HeadWeights<T>& weights, bool accumulate, const HeadPass& pass) {
  DISTGNN_BEST(sum_head_pass<kVectors, kColumns, kHeadsOf>(a, stretch, weights, accumulate, pass));
}

}  // namespace

template <typename X, typename T>
void sum_heads(const HeadSumArgs<X, T>& a, const Heads& heads, const Stretch& stretch,
               const HeadWeights<T>& weights, bool accumulate) {
  for_joined_passes<T>(heads, [&](auto size, const HeadPass& pass) {
    sum_head_pass<size.kNumVectors, size.kNumLanes, size.kNumHeads>(a, stretch, weights,
                                                                    accumulate, pass);
  });
}

template void sum_heads(const HeadSumArgs<float, float>&, const Heads&, const Stretch&,
                        const HeadWeights<float>&, bool);
template void sum_heads(const HeadSumArgs<double, double>&, const Heads&, const Stretch&,
                        const HeadWeights<double>&, bool);
template void sum_heads(const HeadSumArgs<Bf16, float>&, const Heads&, const Stretch&,
                        const HeadWeights<float>&, bool);

}  // namespace distgnn
