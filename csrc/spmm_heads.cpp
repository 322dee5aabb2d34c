// Algorithm: spmm_sum with a weight for every edge and head.
// Formula: out[v, h] = sum over k in row v of weight[k, h] * x[indices[k], h].
// Source: Velickovic et al., ICLR 2018.
#include "spmm_heads.h"

#include "head_sum.h"

namespace distgnn {

template <typename T>
void spmm_heads(const CsrView& graph, const WalkOrderView& walk, const T* weight,
                std::int64_t num_heads, const T* x, std::int64_t width, bool accumulate, T* out) {
  const HeadSumArgs<T, T> a{Schedule(graph, walk), x, num_heads * width, out};
  for_head_tasks(a.schedule, num_heads, width,
                 [&](std::int64_t begin, std::int64_t end, const Heads& heads) {
                   const Stretch all{begin, end, 0, a.schedule.num_edges};
                   const HeadWeights<T> weights{weight + heads.begin, 0, num_heads, true};
                   sum_heads(a, heads, all, weights, accumulate);
                 });
}

template void spmm_heads(const CsrView&, const WalkOrderView&, const float*, std::int64_t,
                         const float*, std::int64_t, bool, float*);
template void spmm_heads(const CsrView&, const WalkOrderView&, const double*, std::int64_t,
                         const double*, std::int64_t, bool, double*);

}  // namespace distgnn
