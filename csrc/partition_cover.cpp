// Algorithm: edges live away from their covered end; edges that may live on either side go, in
//   order, to the part with less load.
// Formula: rows = slots of a minimum vertex cover.
// Source: Koenig, "Grafok es matrixok", 1931; "SuperGCN", arXiv:2411.16025.
#include "partition_cover.h"

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
