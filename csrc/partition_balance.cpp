// Algorithm: a heap of vertices in overfull parts by price; a move makes its neighbours cheaper,
//   which enter again with a bound and are priced when their turn comes.
// Formula: price = edges newly cut / load that leaves the overfull constraints.
// Source: partition/refine/rebalance.py and hubs.py describe the arrays.
#include "partition_balance.h"

#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

constexpr double kWeightScale = 100;
constexpr double kMostWeight = 2147483647;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t degree(const Links& links, int64_t vertex) {
  return links.indptr[vertex + 1] - links.indptr[vertex];
}

// How much a vertex takes off the overfull constraints of its part.
double relief_of(Array<double> load, In<double> share) {
  double relief = 1e-12;
  for (int64_t c = 0; c < load.size; ++c) {
    if (load[c] > 1.0) relief += share[c];
  }
  return relief;
}

bool lowers_excess(Array<double> source, Array<double> target, In<double> share) {
  // A smaller step is rounding, and could go to and fro for ever.
  constexpr double kStep = 1e-9;
  double change = 0.0;
  for (int64_t c = 0; c < share.size; ++c) {
    const double before = std::max(source[c] - 1.0, 0.0) + std::max(target[c] - 1.0, 0.0);
    const double after =
        std::max(source[c] - share[c] - 1.0, 0.0) + std::max(target[c] + share[c] - 1.0, 0.0);
    change += after - before;
  }
  return change < -kStep;
}

struct Price {
  double price;
  int64_t target;
};

// Edges newly cut per load that leaves, for the best move that lowers the summed excess.
Price price_of(const Links& links, Array<int32_t> part, int64_t vertex, Rows2<const double> share,
               Rows2<double> load, Array<int64_t> beside) {
  beside.fill(0);
  for (int64_t k = links.indptr[vertex]; k < links.indptr[vertex + 1]; ++k) {
    beside[part[links.indices[k]]] += links.weight[k];
  }
  const int64_t home = part[vertex];
  int64_t best = -1;
  for (int64_t target = 0; target < load.size; ++target) {
    if (target == home || !lowers_excess(load[home], load[target], share[vertex])) continue;
    if (best < 0 || beside[target] > beside[best] ||
        (beside[target] == beside[best] && most_of(load[target]) < most_of(load[best]))) {
      best = target;
    }
  }
  if (best < 0) return {kInfinity, best};
  return {static_cast<double>(beside[home] - beside[best]) / relief_of(load[home], share[vertex]),
          best};
}

}  // namespace

Made<int32_t> light_weights(const Links& links, double hub) {
  Made<int32_t> weights(links.indices.size);
  for (int64_t vertex = 0; vertex + 1 < links.indptr.size; ++vertex) {
    for (int64_t k = links.indptr[vertex]; k < links.indptr[vertex + 1]; ++k) {
      const int64_t most = std::max(degree(links, vertex), degree(links, links.indices[k]));
      const double light =
          kWeightScale * static_cast<double>(links.weight[k]) * std::min(hub / static_cast<double>(most), 1.0);
      weights[k] = static_cast<int32_t>(std::min(std::max(std::nearbyint(light), 1.0), kMostWeight));
    }
  }
  return weights;
}

Made<double> edges_beside(const Links& links, double hub) {
  Made<double> edges(links.indptr.size - 1, 0.0);
  int64_t most = 0;
  for (int64_t vertex = 0; vertex < edges.size(); ++vertex) {
    most = std::max(most, degree(links, vertex));
  }
  const bool has_hub = static_cast<double>(most) > hub;
  const auto share_of = [&](int64_t vertex, int64_t k) {
    // Without a hub half of each link is beside either end, whose degree need not be looked up.
    if (!has_hub) return 0.5;
    const int64_t own = degree(links, vertex), other = degree(links, links.indices[k]);
    const double light = 0.5 * std::min(hub / static_cast<double>(std::max(own, other)), 1.0);
    return own == other ? 0.5 : own > other ? light : 1.0 - light;
  };
  for (int64_t vertex = 0; vertex < edges.size(); ++vertex) {
    for (int64_t k = links.indptr[vertex]; k < links.indptr[vertex + 1]; ++k) {
      edges[vertex] += static_cast<double>(links.weight[k]) * share_of(vertex, k);
    }
  }
  return edges;
}

int64_t drain_vertices(const Links& links, Array<int32_t> part, Rows2<const double> share,
                       Rows2<double> load) {
  using Entry = std::pair<double, int64_t>;
  Made<int64_t> beside(load.size, 0);
  Made<double> price(part.size, kInfinity);
  std::vector<Entry> begun;
  for (int64_t vertex = 0; vertex < part.size; ++vertex) {
    if (most_of(load[part[vertex]]) <= 1.0) continue;
    price[vertex] = price_of(links, part, vertex, share, load, beside.view()).price;
    if (price[vertex] < kInfinity) begun.emplace_back(price[vertex], vertex);
  }
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue(std::greater<>{},
                                                                       std::move(begun));
  int64_t num_moves = 0;
  while (!queue.empty()) {
    const auto [bound, vertex] = queue.top();
    queue.pop();
    const int32_t home = part[vertex];
    if (bound != price[vertex] || most_of(load[home]) <= 1.0) continue;
    const Price exact = price_of(links, part, vertex, share, load, beside.view());
    price[vertex] = exact.price;
    if (exact.target < 0) continue;
    if (exact.price > bound) {
      queue.emplace(exact.price, vertex);
      continue;
    }
    part[vertex] = static_cast<int32_t>(exact.target);
    price[vertex] = kInfinity;
    for (int64_t c = 0; c < load.width; ++c) {
      load[home][c] -= share[vertex][c];
      load[exact.target][c] += share[vertex][c];
    }
    ++num_moves;
    for (int64_t k = links.indptr[vertex]; k < links.indptr[vertex + 1]; ++k) {
      const int64_t neighbor = links.indices[k];
      if (part[neighbor] != home || price[neighbor] == kInfinity) continue;
      price[neighbor] -= 2.0 * static_cast<double>(links.weight[k]) / relief_of(load[home], share[neighbor]);
      queue.emplace(price[neighbor], neighbor);
    }
  }
  return num_moves;
}

}  // namespace distgnn
