// Weights of links and vertices where there are hubs, and vertices moved out of overfull parts;
// partition/refine/hubs.py and rebalance.py describe the arrays.
#pragma once

#include "partition_arcs.h"

namespace distgnn {

// A matrix whose rows lie one after another.
template <typename T>
struct Rows2 {
  T* data = nullptr;
  std::int64_t size = 0;
  std::int64_t width = 0;

  Array<T> operator[](std::int64_t row) const { return {data + row * width, width}; }
};

// The weights of links, in units of their own, where those of hubs weigh less.
Made<std::int32_t> light_weights(const Links& links, double hub);
// Edges that are expected beside each root.
Made<double> edges_beside(const Links& links, double hub);
// Moves vertices out of overfull parts, cheapest first; returns how many moved. Loads and shares
// are in units of their limits.
std::int64_t drain_vertices(const Links& links, Array<std::int32_t> part, Rows2<const double> share,
                            Rows2<double> load);

}  // namespace distgnn
