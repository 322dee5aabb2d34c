// Algorithm: phases of one breadth-first search for distances, then depth-first searches with an
//   explicit stack for disjoint shortest augmenting paths.
// Formula: a matching is maximum where no path augments it.
// Source: Hopcroft and Karp, "An n^(5/2) algorithm for maximum matchings in bipartite graphs",
//   SIAM J. Computing 1973.
#include <numeric>

#include "partition_cover.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

constexpr int32_t kUnmatched = -1;

struct Search {
  Made<int32_t> distance;
  Made<int64_t> next_edge;
  // Left vertices of the path in progress; also the queue of the layers.
  Made<int32_t> stack;
};

// Matches left vertices, those with few neighbours first, to their rarest free neighbour.
void match_greedily(const Bipartite& graph, Matching& matching) {
  const int64_t num_left = graph.indptr.size - 1;
  Made<int64_t> right_degree(graph.num_right, 0), order(num_left);
  for (const int32_t right : graph.indices) right_degree[right] += 1;
  std::iota(order.view().begin(), order.view().end(), int64_t{0});
  const auto degree = [&](int64_t left) { return graph.indptr[left + 1] - graph.indptr[left]; };
  std::stable_sort(order.view().begin(), order.view().end(),
                   [&](int64_t one, int64_t other) { return degree(one) < degree(other); });
  for (const int64_t left : order.view()) {
    int32_t best = kUnmatched;
    for (int64_t k = graph.indptr[left]; k < graph.indptr[left + 1]; ++k) {
      const int32_t right = graph.indices[k];
      if (matching.right[right] == kUnmatched &&
          (best == kUnmatched || right_degree[right] < right_degree[best])) {
        best = right;
      }
    }
    if (best == kUnmatched) continue;
    matching.left[left] = best;
    matching.right[best] = static_cast<int32_t>(left);
  }
}

// Sets alternating distances from the unmatched left vertices; tells if a path augments.
bool layer(const Bipartite& graph, Matching& matching, Search& search) {
  Made<int32_t>&distance = search.distance, &queue = search.stack;
  int64_t tail = 0;
  for (int64_t left = 0; left < distance.size(); ++left) {
    distance[left] = -1;
    if (matching.left[left] == kUnmatched) {
      distance[left] = 0;
      queue[tail++] = static_cast<int32_t>(left);
    }
  }
  int64_t head = 0;
  int32_t shortest = -1;
  while (head < tail) {
    const int32_t left = queue[head++];
    if (shortest >= 0 && distance[left] >= shortest) break;
    for (int64_t k = graph.indptr[left]; k < graph.indptr[left + 1]; ++k) {
      const int32_t partner = matching.right[graph.indices[k]];
      if (partner == kUnmatched) {
        // Layers beyond the first free right vertex belong to later phases.
        shortest = distance[left] + 1;
      } else if (distance[partner] < 0) {
        distance[partner] = distance[left] + 1;
        queue[tail++] = partner;
      }
    }
  }
  return shortest >= 0;
}

// Flips one shortest augmenting path from an unmatched left vertex, if one is left.
void augment(int32_t root, const Bipartite& graph, Matching& matching, Search& search) {
  Made<int32_t>&distance = search.distance, &stack = search.stack;
  Made<int64_t>& next_edge = search.next_edge;
  stack[0] = root;
  int64_t depth = 1;
  while (depth > 0) {
    int32_t left = stack[depth - 1];
    if (next_edge[left] == graph.indptr[left + 1]) {
      distance[left] = -1;
      --depth;
      continue;
    }
    const int32_t partner = matching.right[graph.indices[next_edge[left]]];
    next_edge[left] += 1;
    if (partner == kUnmatched) {
      while (depth > 0) {
        left = stack[--depth];
        const int32_t right = graph.indices[next_edge[left] - 1];
        matching.left[left] = right;
        matching.right[right] = left;
        // A path of this phase may not cross this one again.
        distance[left] = -1;
      }
    } else if (distance[partner] == distance[left] + 1) {
      stack[depth++] = partner;
    }
  }
}

}  // namespace

Matching maximum_matching(const Bipartite& graph) {
  const int64_t num_left = graph.indptr.size - 1;
  Matching matching{Made<int32_t>(num_left, kUnmatched), Made<int32_t>(graph.num_right, kUnmatched)};
  Search search{Made<int32_t>(num_left), Made<int64_t>(num_left), Made<int32_t>(num_left)};
  match_greedily(graph, matching);
  while (layer(graph, matching, search)) {
    std::copy_n(graph.indptr.data, num_left, search.next_edge.view().begin());
    for (int64_t root = 0; root < num_left; ++root) {
      if (matching.left[root] == kUnmatched) {
        augment(static_cast<int32_t>(root), graph, matching, search);
      }
    }
  }
  return matching;
}

Reach alternating_reach(const Bipartite& graph, In<int32_t> left, In<int32_t> right) {
  Reach reach{Made<bool>(left.size, false), Made<bool>(right.size, false)};
  Made<int32_t> queue(left.size);
  int64_t tail = 0;
  for (int64_t vertex = 0; vertex < left.size; ++vertex) {
    if (left[vertex] != kUnmatched) continue;
    reach.left[vertex] = true;
    queue[tail++] = static_cast<int32_t>(vertex);
  }
  for (int64_t head = 0; head < tail; ++head) {
    const int32_t vertex = queue[head];
    for (int64_t k = graph.indptr[vertex]; k < graph.indptr[vertex + 1]; ++k) {
      const int32_t other = graph.indices[k];
      if (reach.right[other]) continue;
      reach.right[other] = true;
      // A maximum matching leaves no reached right vertex alone.
      const int32_t partner = right[other];
      if (partner == kUnmatched || reach.left[partner]) continue;
      reach.left[partner] = true;
      queue[tail++] = partner;
    }
  }
  return reach;
}

}  // namespace distgnn
