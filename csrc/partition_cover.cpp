// Algorithm: edges live away from their covered end; edges that may live on either side go, in
//   order, to the part with less load.
// Formula: rows = slots of a minimum vertex cover.
// Source: Koenig, "Grafok es matrixok", 1931; "SuperGCN", arXiv:2411.16025.
#include "partition_cover.h"

#include <numeric>

namespace distgnn {

using std::int32_t;
using std::int64_t;

CutArcs cut_arcs(int64_t first, int64_t last, const ArcView& arcs, In<int32_t> weight,
                 In<int32_t> root_part, Array<int32_t> arc_part, int64_t num_parts, bool one_way) {
  const int64_t most = arcs.start[last] - arcs.start[first];
  Made<int64_t> cut(most), load(num_parts, 0);
  Made<int32_t> source(most);
  int64_t num_cut = 0;
  for (int64_t vertex = first; vertex < last; ++vertex) {
    const int32_t part = root_part[vertex];
    for (int64_t arc = arcs.start[vertex]; arc < arcs.start[vertex + 1]; ++arc) {
      const int32_t other = root_part[arcs.head[arc]];
      arc_part[arc] = part;
      if (other == part) {
        load[part] += weight[arc];
      } else if (part < other || !one_way) {
        cut[num_cut] = arc;
        source[num_cut] = static_cast<int32_t>(vertex);
        ++num_cut;
      }
    }
  }
  return {cut.shrunk(num_cut), source.shrunk(num_cut), std::move(load)};
}

SlotNumbers number_slots(In<int32_t> vertex, In<int32_t> part, int64_t num_parts) {
  Made<int32_t> slot(vertex.size), number(num_parts, 0);
  Made<int64_t> key(vertex.size), last(num_parts, -1), found(num_parts);
  int64_t num_slots = 0, begin = 0;
  while (begin < vertex.size) {
    int64_t end = begin, num_found = 0;
    for (; end < vertex.size && vertex[end] == vertex[begin]; ++end) {
      if (last[part[end]] == vertex[begin]) continue;
      last[part[end]] = vertex[begin];
      found[num_found++] = part[end];
    }
    std::sort(found.view().begin(), found.view().begin() + num_found);
    for (int64_t i = 0; i < num_found; ++i) {
      number[found[i]] = static_cast<int32_t>(num_slots);
      key[num_slots++] = vertex[begin] * num_parts + found[i];
    }
    for (int64_t k = begin; k < end; ++k) slot[k] = number[part[k]];
    begin = end;
  }
  return {std::move(slot), key.shrunk(num_slots)};
}

Settled settled_edges(const CutEdgesView& edges, const CoverView& cover, Array<int64_t> load) {
  Made<int32_t> placed(edges.left.size);
  Made<bool> is_free(edges.left.size);
  for (int64_t edge = 0; edge < edges.left.size; ++edge) {
    const int32_t left = edges.left[edge], right = edges.right[edge];
    const bool at_left = cover.is_left_covered[left], at_right = cover.is_right_covered[right];
    const bool left_free = cover.is_left_free[left], right_free = cover.is_right_free[right];
    is_free[edge] = left_free && right_free;
    placed[edge] = at_left ? edges.destination_part[edge] : edges.source_part[edge];
    if (at_left != at_right && !left_free && !right_free) {
      load[placed[edge]] += edges.multiplicity[edge];
    }
  }
  return {std::move(placed), std::move(is_free)};
}

namespace {

// Nodes in sets; each is named by its first node.
class FirstNodes {
 public:
  explicit FirstNodes(int64_t num_nodes) : above_(num_nodes) {
    std::iota(above_.view().begin(), above_.view().end(), std::uint32_t{0});
  }
  std::uint32_t find(std::uint32_t node) {
    while (above_[node] != node) node = above_[node] = above_[above_[node]];
    return node;
  }
  void join(std::uint32_t one, std::uint32_t other) {
    one = find(one);
    other = find(other);
    above_[std::max(one, other)] = std::min(one, other);
  }
  // What nodes are named by is no longer needed.
  Array<std::uint32_t> reuse() { return above_.view(); }

 private:
  Made<std::uint32_t> above_;
};

// Numbers two ascending rows of keys together, equal ones alike; returns how many there are.
int64_t number_together(In<int64_t> one, In<int64_t> other, Array<std::uint32_t> one_number,
                        Array<std::uint32_t> other_number) {
  int64_t i = 0, j = 0;
  std::uint32_t number = 0;
  for (; i < one.size || j < other.size; ++number) {
    const bool has_one = j == other.size || (i < one.size && one[i] <= other[j]);
    const bool has_other = i == one.size || (j < other.size && other[j] <= one[i]);
    if (has_one) one_number[i++] = number;
    if (has_other) other_number[j++] = number;
  }
  return number;
}

}  // namespace

Made<int64_t> free_components(const CutEdgesView& edges, In<bool> is_free, bool is_paired) {
  const int64_t num_left = edges.left_key.size, num_right = edges.right_key.size;
  Made<std::uint32_t> left_node(is_paired ? num_left : 0), right_node(is_paired ? num_right : 0);
  const int64_t num_nodes = is_paired ? number_together(edges.left_key, edges.right_key,
                                                        left_node.view(), right_node.view())
                                      : num_left + num_right;
  const auto left_of = [&](int64_t edge) {
    const int32_t slot = edges.left[edge];
    return is_paired ? left_node[slot] : static_cast<std::uint32_t>(slot);
  };
  const auto right_of = [&](int64_t edge) {
    const int32_t slot = edges.right[edge];
    return is_paired ? right_node[slot] : static_cast<std::uint32_t>(num_left + slot);
  };
  FirstNodes nodes(num_nodes);
  int64_t num_free = 0;
  for (int64_t edge = 0; edge < is_free.size; ++edge) {
    if (!is_free[edge]) continue;
    nodes.join(left_of(edge), right_of(edge));
    ++num_free;
  }
  Made<int64_t> component(num_free);
  for (int64_t edge = 0, k = 0; edge < is_free.size; ++edge) {
    if (is_free[edge]) component[k++] = nodes.find(left_of(edge));
  }
  const Array<std::uint32_t> number = nodes.reuse();
  number.fill(0);
  for (const int64_t first : component.read()) number[first] = 1;
  std::exclusive_scan(number.begin(), number.end(), number.begin(), std::uint32_t{0});
  for (int64_t& each : component.view()) each = number[each];
  return component;
}

void cover_components(const CutEdgesView& edges, In<int32_t> placed, In<bool> is_free,
                      Array<bool> left_covered, Array<bool> right_covered) {
  for (int64_t edge = 0; edge < placed.size; ++edge) {
    if (!is_free[edge]) continue;
    left_covered[edges.left[edge]] = placed[edge] == edges.destination_part[edge];
    right_covered[edges.right[edge]] = placed[edge] == edges.source_part[edge];
  }
}

Made<int64_t> covered_edges(const CutEdgesView& edges, In<bool> left_covered,
                            In<bool> right_covered, Array<int32_t> placed, Array<int64_t> load) {
  Made<int64_t> open_edges(placed.size);
  int64_t num_open = 0;
  for (int64_t edge = 0; edge < placed.size; ++edge) {
    const bool at_left = left_covered[edges.left[edge]];
    if (at_left && right_covered[edges.right[edge]]) {
      open_edges[num_open++] = edge;
      continue;
    }
    placed[edge] = at_left ? edges.destination_part[edge] : edges.source_part[edge];
    load[placed[edge]] += edges.multiplicity[edge];
  }
  return open_edges.shrunk(num_open);
}

Made<int32_t> level_items(In<int32_t> first, In<int32_t> second, In<int64_t> weight,
                          Array<int64_t> load) {
  Made<int32_t> chosen(first.size);
  for (int64_t k = 0; k < first.size; ++k) {
    chosen[k] = load[first[k]] <= load[second[k]] ? first[k] : second[k];
    load[chosen[k]] += weight[k];
  }
  return chosen;
}

}  // namespace distgnn
