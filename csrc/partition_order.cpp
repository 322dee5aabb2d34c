// Algorithm: vertices are visited once, those with few links first; each joins the neighbour with
//   which modularity grows most, and the order walks down the tree of mergers.
// Formula: gain = links to the neighbour - volume * volume / all ends.
// Source: Arai et al., "Rabbit Order", IPDPS 2016; Raghavan, Albert and Kumara, Physical Review E
//   2007 (label propagation); Steele, Lea and Flood, OOPSLA 2014 (mixing of hashes).
#include "partition_order.h"

#include <numeric>
#include <utility>

namespace distgnn {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

bool has_reverses(In<int32_t> src, In<int32_t> dst) {
  const auto hash = [](int32_t high, int32_t low) {
    uint64_t mixed = static_cast<uint64_t>(high) << 32 | static_cast<uint64_t>(low);
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    return mixed ^ (mixed >> 31);
  };
  uint64_t difference = 0;
  for (int64_t k = 0; k < src.size; ++k) {
    difference += hash(dst[k], src[k]) - hash(src[k], dst[k]);
  }
  return difference == 0;
}

RootLinks link_ends(In<int32_t> src, In<int32_t> dst, int64_t num_vertices) {
  Made<int64_t> indptr(num_vertices + 1, 0);
  for (int64_t k = 0; k < src.size; ++k) {
    indptr[src[k] + 1] += 1;
    indptr[dst[k] + 1] += 1;
  }
  for (int64_t vertex = 0; vertex < num_vertices; ++vertex) indptr[vertex + 1] += indptr[vertex];
  Made<int64_t> position(num_vertices);
  std::copy_n(indptr.view().begin(), num_vertices, position.view().begin());
  Made<int32_t> indices(indptr[num_vertices]);
  for (int64_t k = 0; k < src.size; ++k) {
    indices[position[src[k]]++] = dst[k];
    indices[position[dst[k]]++] = src[k];
  }
  return {std::move(indptr), std::move(indices)};
}

// The links of a community lie in the segments of its members, of which `follower` makes a chain.
// Visiting it replaces them by one link for each community they lead to: never more than before.
Made<int64_t> merge_communities(In<int64_t> indptr, Array<int32_t> link, In<int64_t> visits) {
  const int64_t num_vertices = indptr.size - 1;
  Made<float> weight(link.size, 1.0f), strength(num_vertices, 0.0f);
  Made<int64_t> end(num_vertices), follower(num_vertices, -1), tail(num_vertices);
  Made<int64_t> parent(num_vertices, -1), top(num_vertices), seen(num_vertices);
  Made<double> volume(num_vertices);
  for (int64_t vertex = 0; vertex < num_vertices; ++vertex) {
    end[vertex] = indptr[vertex + 1];
    tail[vertex] = top[vertex] = vertex;
    volume[vertex] = static_cast<double>(indptr[vertex + 1] - indptr[vertex]);
  }
  const double total = std::max(static_cast<double>(link.size), 1.0);
  for (const int64_t vertex : visits) {
    int64_t num_seen = 0;
    for (int64_t segment = vertex; segment >= 0; segment = follower[segment]) {
      for (int64_t k = indptr[segment]; k < end[segment]; ++k) {
        // Halving the path to the top, as in any union-find.
        int64_t other = link[k];
        while (top[other] != other) other = top[other] = top[top[other]];
        if (other == vertex) continue;
        if (strength[other] == 0.0f) seen[num_seen++] = other;
        strength[other] += weight[k];
      }
    }
    int64_t best = -1, segment = vertex, k = indptr[vertex];
    double best_gain = 0.0;
    end[vertex] = k;
    for (int64_t i = 0; i < num_seen; ++i) {
      const int64_t other = seen[i];
      const double gain =
          static_cast<double>(strength[other]) - volume[vertex] * volume[other] / total;
      if (gain > best_gain || (gain == best_gain && best >= 0 && other < best)) {
        best = other;
        best_gain = gain;
      }
      while (k == indptr[segment + 1]) {
        end[segment] = k;
        segment = follower[segment];
        k = indptr[segment];
      }
      link[k] = static_cast<int32_t>(other);
      weight[k] = strength[other];
      strength[other] = 0.0f;
      ++k;
    }
    end[segment] = k;
    follower[segment] = -1;
    tail[vertex] = segment;
    if (best < 0) continue;
    parent[vertex] = best;
    top[vertex] = best;
    volume[best] += volume[vertex];
    follower[tail[best]] = vertex;
    tail[best] = tail[vertex];
  }
  return parent;
}

Made<int64_t> walk_mergers(In<int64_t> parent, In<int64_t> visits) {
  const int64_t num_vertices = parent.size;
  Made<int64_t> latest(num_vertices, -1), earlier(num_vertices, -1);
  for (const int64_t vertex : visits) {
    if (parent[vertex] < 0) continue;
    earlier[vertex] = latest[parent[vertex]];
    latest[parent[vertex]] = vertex;
  }
  Made<int64_t> order(num_vertices), waiting(num_vertices);
  int64_t num_ordered = 0;
  for (int64_t start = 0; start < num_vertices; ++start) {
    if (parent[start] >= 0) continue;
    int64_t num_waiting = 0;
    waiting[num_waiting++] = start;
    while (num_waiting > 0) {
      const int64_t vertex = waiting[--num_waiting];
      order[num_ordered++] = vertex;
      for (int64_t child = latest[vertex]; child >= 0; child = earlier[child]) {
        waiting[num_waiting++] = child;
      }
    }
  }
  return order;
}

Made<int32_t> propagate_labels(In<int64_t> indptr, In<int32_t> indices, In<int64_t> visits,
                               int64_t largest, int64_t num_rounds) {
  const int64_t num_vertices = indptr.size - 1;
  Made<int32_t> label(num_vertices), count(num_vertices, 0), seen(num_vertices);
  Made<int64_t> size(num_vertices, 1);
  std::iota(label.view().begin(), label.view().end(), 0);
  for (int64_t round = 0; round < num_rounds; ++round) {
    for (const int64_t vertex : visits) {
      int64_t num_seen = 0;
      for (int64_t k = indptr[vertex]; k < indptr[vertex + 1]; ++k) {
        const int32_t other = label[indices[k]];
        if (count[other] == 0) seen[num_seen++] = other;
        count[other] += 1;
      }
      const int32_t own = label[vertex];
      int32_t best = own;
      for (int64_t i = 0; i < num_seen; ++i) {
        const int32_t other = seen[i];
        // Among equal ones its own stays, else the smallest is taken.
        const bool is_first = count[other] == count[best] && best != own && other < best;
        if ((count[other] > count[best] || is_first) && size[other] < largest) best = other;
      }
      for (int64_t i = 0; i < num_seen; ++i) count[seen[i]] = 0;
      size[own] -= 1;
      size[best] += 1;
      label[vertex] = best;
    }
  }
  return label;
}

int64_t count_fetches(In<int64_t> begin, In<int64_t> end, In<int32_t> indices, int64_t num_sources,
                      int64_t num_rows) {
  // The last window that fetched each source.
  Made<int64_t> window_of(num_sources, -1);
  int64_t fetches = 0, window = 0, num_held = 0;
  for (int64_t run = 0; run < begin.size; ++run) {
    for (int64_t k = begin[run]; k < end[run]; ++k) {
      const int32_t source = indices[k];
      if (window_of[source] == window) continue;
      if (num_held == num_rows) {
        ++window;
        num_held = 0;
      }
      window_of[source] = window;
      ++num_held;
      ++fetches;
    }
  }
  return fetches;
}

}  // namespace distgnn
