// Algorithm: counting sorts by destination, then by source; a row meets its arcs in the order of
//   their sources, which pairs every arc with the one that goes back.
// Formula: weight of an arc = edges behind it; of a link = edges behind both of its arcs.
// Source: partition/arcs.py describes the arrays.
#include "partition_arcs.h"

namespace distgnn {

using std::int32_t;
using std::int64_t;

Made<int64_t> starts_of(In<int64_t> ends, int64_t num_vertices) {
  Made<int64_t> start(num_vertices + 1, 0);
  for (const int64_t vertex : ends) start[vertex + 1] += 1;
  for (int64_t vertex = 0; vertex < num_vertices; ++vertex) start[vertex + 1] += start[vertex];
  return start;
}

namespace {

Made<int64_t> positions(In<int64_t> start, int64_t first, int64_t last) {
  Made<int64_t> position(last - first);
  std::copy(start.data + first, start.data + last, position.view().begin());
  return position;
}

}  // namespace

template <typename Number>
void sort_by_head(int64_t first, int64_t last, In<int64_t> src, In<int64_t> dst, In<int64_t> order,
                  In<int64_t> start, Array<int32_t> source, Array<Number> number) {
  Made<int64_t> position = positions(start, first, last);
  for (int64_t i = 0; i < dst.size; ++i) {
    const int64_t edge = order.size > 0 ? order[i] : i;
    const int64_t vertex = dst[edge] - first;
    if (vertex < 0 || vertex >= last - first) continue;
    const int64_t place = position[vertex]++;
    source[place] = static_cast<int32_t>(src[edge]);
    number[place] = static_cast<Number>(edge);
  }
}

template <typename Number>
void sort_by_source(int64_t first, int64_t last, In<int64_t> by_head, In<int32_t> source,
                    In<Number> number, In<int64_t> start, Array<int32_t> head,
                    Array<Number> edge) {
  Made<int64_t> position = positions(start, first, last);
  for (int64_t vertex = 0; vertex < start.size - 1; ++vertex) {
    for (int64_t k = by_head[vertex]; k < by_head[vertex + 1]; ++k) {
      const int64_t row = source[k] - first;
      if (row < 0 || row >= last - first) continue;
      const int64_t place = position[row]++;
      head[place] = static_cast<int32_t>(vertex);
      edge[place] = number[k];
    }
  }
}

template <typename Number>
Made<int32_t> merge_arcs(Array<int64_t> start, Array<int32_t> head, In<Number> edge,
                         In<int32_t> part, Array<Number> of_edge) {
  Made<int32_t> weight(head.size);
  int64_t num_arcs = 0, begin = start[0];
  for (int64_t vertex = 0; vertex < start.size - 1; ++vertex) {
    const int64_t end = start[vertex + 1];
    for (int64_t k = begin; k < end; ++k) {
      bool is_new = k == begin || head[k] != head[num_arcs - 1];
      if (!is_new && part.size > 0) is_new = part[edge[k]] != part[edge[k - 1]];
      if (is_new) {
        head[num_arcs] = head[k];
        weight[num_arcs] = 0;
        ++num_arcs;
      }
      weight[num_arcs - 1] += 1;
      of_edge[edge[k]] = static_cast<Number>(num_arcs - 1);
    }
    begin = end;
    start[vertex + 1] = num_arcs;
  }
  return weight.shrunk(num_arcs);
}

template <typename Number>
bool pair_arcs(int64_t first, int64_t last, In<int64_t> start, In<int32_t> head,
               Array<Number> mate) {
  Made<int64_t> position = positions(start, first, last);
  for (int64_t vertex = 0; vertex < start.size - 1; ++vertex) {
    for (int64_t k = start[vertex]; k < start[vertex + 1]; ++k) {
      const int64_t row = head[k] - first;
      if (row < 0 || row >= last - first) continue;
      const int64_t back = position[row];
      if (back == start[head[k] + 1] || head[back] != vertex) return false;
      position[row] = back + 1;
      mate[k] = static_cast<Number>(back);
    }
  }
  return true;
}

template <typename Number>
Made<int32_t> with_mates(In<int32_t> weight, In<Number> mate, bool is_simple) {
  Made<int32_t> both(weight.size);
  std::copy(weight.begin(), weight.end(), both.view().begin());
  for (int64_t arc = 0; arc < mate.size; ++arc) {
    if (mate[arc] != arc) both[arc] += is_simple ? 1 : weight[mate[arc]];
  }
  return both;
}

template <typename Number>
void take_parts(int64_t first, int64_t last, In<int32_t> parts, In<Number> index,
                Array<int32_t> taken) {
  for (int64_t k = first; k < last; ++k) {
    __builtin_prefetch(&parts[index[std::min(k + kAhead, last - 1)]]);
    taken[k] = parts[index[k]];
  }
}

Made<int64_t> sort_edges(In<int32_t> row, In<int32_t> column, In<int32_t> rank) {
  // Where the edges of each row, or of each column by rank, go next.
  const auto places = [&](auto&& key) {
    Made<int64_t> place(rank.size + 1, 0);
    for (int64_t k = 0; k < row.size; ++k) place[key(k) + 1] += 1;
    for (int64_t at = 0; at < rank.size; ++at) place[at + 1] += place[at];
    return place;
  };
  Made<int64_t> by_column(row.size), sorted(row.size);
  Made<int64_t> place = places([&](int64_t k) { return rank[column[k]]; });
  for (int64_t k = 0; k < row.size; ++k) by_column[place[rank[column[k]]]++] = k;
  place = places([&](int64_t k) { return row[k]; });
  for (const int64_t edge : by_column.view()) sorted[place[row[edge]]++] = edge;
  return sorted;
}

BothWays both_ways(In<int64_t> start, In<int32_t> head, In<int32_t> weight) {
  const int64_t num_vertices = start.size - 1;
  Made<int64_t> back_start(num_vertices + 1, 0);
  for (const int32_t other : head) back_start[other + 1] += 1;
  for (int64_t vertex = 0; vertex < num_vertices; ++vertex) {
    back_start[vertex + 1] += back_start[vertex];
  }
  Made<int64_t> position = positions(back_start.read(), 0, num_vertices);
  Made<int32_t> back(head.size), back_weight(head.size);
  for (int64_t vertex = 0; vertex < num_vertices; ++vertex) {
    for (int64_t k = start[vertex]; k < start[vertex + 1]; ++k) {
      const int64_t place = position[head[k]]++;
      back[place] = static_cast<int32_t>(vertex);
      back_weight[place] = weight[k];
    }
  }
  Made<int64_t> indptr(num_vertices + 1, 0);
  Made<int32_t> indices(2 * head.size), both(2 * head.size);
  int64_t size = 0;
  for (int64_t vertex = 0; vertex < num_vertices; ++vertex) {
    int64_t i = start[vertex], j = back_start[vertex];
    while (i < start[vertex + 1] || j < back_start[vertex + 1]) {
      bool is_out = i < start[vertex + 1], is_in = j < back_start[vertex + 1];
      if (is_out && is_in) {
        is_out = head[i] <= back[j];
        is_in = back[j] <= head[i];
      }
      const int32_t other = is_out ? head[i] : back[j];
      if (other != vertex) {
        indices[size] = other;
        both[size] = (is_out ? weight[i] : 0) + (is_in ? back_weight[j] : 0);
        ++size;
      }
      i += is_out;
      j += is_in;
    }
    indptr[vertex + 1] = size;
  }
  return {std::move(indptr), indices.shrunk(size), both.shrunk(size)};
}

template <typename Weight>
Made<int64_t> edges_of_parts(In<int32_t> part, In<Weight> weight, int64_t num_parts) {
  Made<int64_t> edges(num_parts, 0);
  for (int64_t arc = 0; arc < part.size; ++arc) edges[part[arc]] += weight[arc];
  return edges;
}

Apart arcs_apart(In<int64_t> start, In<int32_t> head) {
  const int64_t num_vertices = start.size - 1, num_arcs = head.size;
  Made<int64_t> starts(2 * num_vertices + 1, 0);
  std::copy(start.begin(), start.end(), starts.view().begin());
  for (const int32_t vertex : head) starts[num_vertices + vertex + 1] += 1;
  for (int64_t vertex = 0; vertex < num_vertices; ++vertex) {
    starts[num_vertices + vertex + 1] += starts[num_vertices + vertex];
  }
  Made<int64_t> position = positions(starts.read(), num_vertices, 2 * num_vertices);
  Made<int32_t> neighbor(2 * num_arcs), mate(2 * num_arcs);
  for (int64_t vertex = 0; vertex < num_vertices; ++vertex) {
    for (int64_t k = start[vertex]; k < start[vertex + 1]; ++k) {
      const int64_t back = position[head[k]]++;
      neighbor[k] = static_cast<int32_t>(num_vertices + head[k]);
      mate[k] = static_cast<int32_t>(back);
      neighbor[back] = static_cast<int32_t>(vertex);
      mate[back] = static_cast<int32_t>(k);
    }
  }
  return {std::move(starts), std::move(neighbor), std::move(mate)};
}

bool are_together(In<int32_t> mate, In<int32_t> arc_part) {
  int64_t num_together = 0;
  for (int64_t arc = 0; arc < mate.size; ++arc) num_together += arc_part[mate[arc]] == arc_part[arc];
  return num_together == mate.size;
}

int64_t rows_read(In<int64_t> start, In<int32_t> arc_part, In<int32_t> root_part,
                  int64_t num_parts) {
  // The last vertex that was met in each part.
  Made<int64_t> seen(num_parts, -1);
  int64_t rows = 0;
  for (int64_t vertex = 0; vertex < start.size - 1; ++vertex) {
    seen[root_part[vertex]] = vertex;
    for (int64_t arc = start[vertex]; arc < start[vertex + 1]; ++arc) {
      const int32_t part = arc_part[arc];
      if (seen[part] == vertex) continue;
      seen[part] = vertex;
      ++rows;
    }
  }
  return rows;
}

int64_t rows_written(In<int32_t> head, In<int32_t> arc_part, In<int32_t> root_part,
                     Sets is_written) {
  int64_t rows = 0;
  for (int64_t arc = 0; arc < head.size; ++arc) {
    const int32_t vertex = head[arc], part = arc_part[arc];
    if (part == root_part[vertex] || is_written.has(vertex, part)) continue;
    is_written.put(vertex, part);
    ++rows;
  }
  return rows;
}

void count_clones(const ArcView& arcs, In<int32_t> arc_part, In<int32_t> root_part, Sets is_there,
                  Array<int64_t> clones) {
  const auto note = [&](int64_t vertex, int32_t part) {
    if (is_there.has(vertex, part)) return;
    is_there.put(vertex, part);
    clones[part] += 1;
  };
  for (int64_t vertex = 0; vertex < root_part.size; ++vertex) {
    note(vertex, root_part[vertex]);
    for (int64_t arc = arcs.start[vertex]; arc < arcs.start[vertex + 1]; ++arc) {
      note(vertex, arc_part[arc]);
      note(arcs.head[arc], arc_part[arc]);
    }
  }
}

Made<int32_t> spread_roots(In<int64_t> order, In<int64_t> start, In<int32_t> candidate,
                           int64_t num_parts) {
  Made<int64_t> load(num_parts, 0);
  Made<int32_t> root_part(order.size);
  for (const int64_t vertex : order) {
    int64_t best = -1;
    for (int64_t k = start[vertex]; k < start[vertex + 1]; ++k) {
      if (best < 0 || load[candidate[k]] < load[best]) best = candidate[k];
    }
    if (best < 0) best = least_at(load.view());
    root_part[vertex] = static_cast<int32_t>(best);
    load[best] += 1;
  }
  return root_part;
}

#define DISTGNN_ARCS(Number)                                                                      \
  template void sort_by_head(int64_t, int64_t, In<int64_t>, In<int64_t>, In<int64_t>, In<int64_t>, \
                             Array<int32_t>, Array<Number>);                                      \
  template void sort_by_source(int64_t, int64_t, In<int64_t>, In<int32_t>, In<Number>,            \
                               In<int64_t>, Array<int32_t>, Array<Number>);                       \
  template Made<int32_t> merge_arcs(Array<int64_t>, Array<int32_t>, In<Number>, In<int32_t>,      \
                                    Array<Number>);                                               \
  template bool pair_arcs(int64_t, int64_t, In<int64_t>, In<int32_t>, Array<Number>);             \
  template void take_parts(int64_t, int64_t, In<int32_t>, In<Number>, Array<int32_t>);            \
  template Made<int32_t> with_mates(In<int32_t>, In<Number>, bool);                               \
  template Made<int64_t> edges_of_parts(In<int32_t>, In<Number>, int64_t);
DISTGNN_ARCS(int32_t)
DISTGNN_ARCS(int64_t)
#undef DISTGNN_ARCS

}  // namespace distgnn
