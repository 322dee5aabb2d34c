// Algorithm: counting sorts by destination, then by source; a row meets its arcs in the order of
//   their sources, which pairs every arc with the one that goes back.
// Formula: weight of an arc = edges behind it; of a link = edges behind both of its arcs.
// Source: partition/arcs.py describes the arrays.
#include "partition_arcs.h"

#include <limits>

namespace distgnn {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

template <typename End>
Made<int64_t> starts_of(In<End> ends, int64_t num_vertices) {
  Made<int64_t> start(num_vertices + 1, 0);
  for (const End vertex : ends) start[vertex + 1] += 1;
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

template <typename End>
Made<int64_t> count_heads(int64_t first, int64_t last, In<End> dst, In<int64_t> order,
                          int64_t num_vertices) {
  Made<int64_t> count(num_vertices, 0);
  for (int64_t i = first; i < last; ++i) count[dst[order.size > 0 ? order[i] : i]] += 1;
  return count;
}

// What is sorted goes all over memory: the lines of those that follow are fetched in two steps, the
// counters and then what they point at.
template <typename End, typename Number>
void sort_by_head(int64_t first, int64_t last, Array<int64_t> position, In<End> src, In<End> dst,
                  In<int64_t> order, Array<Number> sorted) {
  const auto edge_at = [&](int64_t i) {
    i = std::min(i, last - 1);
    return order.size > 0 ? order[i] : i;
  };
  for (int64_t i = first; i < last; ++i) {
    __builtin_prefetch(&position[dst[edge_at(i + 2 * kAhead)]], 1);
    __builtin_prefetch(&sorted[2 * position[dst[edge_at(i + kAhead)]]], 1);
    const int64_t edge = edge_at(i), place = position[dst[edge]]++;
    sorted[2 * place] = static_cast<Number>(src[edge]);
    sorted[2 * place + 1] = static_cast<Number>(edge);
  }
}

template <typename Number>
Made<int64_t> count_sources(int64_t first, int64_t last, In<int64_t> by_head,
                            In<Number> sorted) {
  Made<int64_t> count(by_head.size - 1, 0);
  for (int64_t k = by_head[first]; k < by_head[last]; ++k) count[sorted[2 * k]] += 1;
  return count;
}

template <typename Number>
void sort_by_source(int64_t first, int64_t last, Array<int64_t> position, In<int64_t> by_head,
                    In<Number> sorted, Array<int32_t> head, Array<Number> edge) {
  const int64_t final = by_head[last] - 1;
  const auto source_at = [&](int64_t k) { return sorted[2 * std::min(k, final)]; };
  for (int64_t vertex = first; vertex < last; ++vertex) {
    for (int64_t k = by_head[vertex]; k < by_head[vertex + 1]; ++k) {
      __builtin_prefetch(&position[source_at(k + 2 * kAhead)], 1);
      const int64_t next = position[source_at(k + kAhead)];
      __builtin_prefetch(&head[next], 1);
      __builtin_prefetch(&edge[next], 1);
      const int64_t place = position[sorted[2 * k]]++;
      head[place] = static_cast<int32_t>(vertex);
      edge[place] = sorted[2 * k + 1];
    }
  }
}

namespace {

// Whether an edge begins an arc: it is its row's first, or not like the one before it.
template <typename Number>
bool begins_arc(const Neighbors<Number>& all, int64_t begin, int64_t k) {
  if (k == begin || all.head[k] != all.head[k - 1]) return true;
  return all.part.size > 0 && all.part[all.edge[k]] != all.part[all.edge[k - 1]];
}

}  // namespace

template <typename Number>
int64_t count_arcs(int64_t first, int64_t last, const Neighbors<Number>& all) {
  int64_t num_arcs = 0;
  for (int64_t vertex = first; vertex < last; ++vertex) {
    const int64_t begin = all.start[vertex];
    for (int64_t k = begin; k < all.start[vertex + 1]; ++k) num_arcs += begins_arc(all, begin, k);
  }
  return num_arcs;
}

template <typename Number>
void merge_arcs(int64_t first, int64_t last, int64_t first_arc, const Neighbors<Number>& all,
                Array<int64_t> arc_start, Array<int32_t> arc_head, Array<int32_t> weight,
                Array<Number> of_edge) {
  int64_t arc = first_arc - 1;
  for (int64_t vertex = first; vertex < last; ++vertex) {
    arc_start[vertex] = arc + 1;
    const int64_t begin = all.start[vertex], end = all.start[vertex + 1];
    for (int64_t k = begin; k < end; ++k) {
      __builtin_prefetch(&of_edge[all.edge[std::min(k + kAhead, all.edge.size - 1)]], 1);
      if (begins_arc(all, begin, k)) {
        ++arc;
        arc_head[arc] = all.head[k];
        weight[arc] = 0;
      }
      weight[arc] += 1;
      of_edge[all.edge[k]] = static_cast<Number>(arc);
    }
  }
}

template <typename Number>
bool pair_arcs(int64_t first, int64_t last, In<int64_t> start, In<int32_t> head,
               Array<Number> mate) {
  if (first == last) return true;
  const int64_t num_vertices = start.size - 1, num_arcs = head.size;
  const int64_t final = start[last] - 1;
  // Where the arcs of a row to a vertex, or to the next one with an arc, begin.
  const auto place_of = [&](int64_t row, int64_t vertex) {
    return std::lower_bound(&head[start[row]], &head[start[row + 1]], vertex) - head.data;
  };
  Made<int64_t> position(num_vertices);
  for (int64_t row = 0; row < num_vertices; ++row) position[row] = place_of(row, first);
  const auto head_at = [&](int64_t k) { return head[std::min(k, final)]; };
  for (int64_t vertex = first; vertex < last; ++vertex) {
    for (int64_t k = start[vertex]; k < start[vertex + 1]; ++k) {
      __builtin_prefetch(&position[head_at(k + 2 * kAhead)], 1);
      __builtin_prefetch(&head[position[head_at(k + kAhead)]]);
      const int64_t back = position[head[k]]++;
      if (back >= num_arcs || head[back] != vertex) return false;
      mate[k] = static_cast<Number>(back);
    }
  }
  // All of these went back from these: else one looked beyond its row, or not to its end.
  for (int64_t row = 0; row < num_vertices; ++row) {
    if (position[row] != place_of(row, last)) return false;
  }
  return true;
}

template <typename Number>
int64_t with_mates(int64_t first, int64_t last, In<int32_t> weight, In<Number> mate,
                   bool is_simple, Array<int32_t> both) {
  int64_t num_loops = 0;
  for (int64_t arc = first; arc < last; ++arc) {
    const bool is_loop = mate[arc] == arc;
    const int32_t back = is_simple ? 1 : weight[mate[arc]];
    both[arc] = weight[arc] + (is_loop ? 0 : back);
    num_loops += is_loop;
  }
  return num_loops;
}

template <typename Number>
void take_parts(int64_t first, int64_t last, In<int32_t> parts, In<Number> index,
                Array<int32_t> taken) {
  for (int64_t k = first; k < last; ++k) {
    __builtin_prefetch(&parts[index[std::min(k + kAhead, last - 1)]]);
    taken[k] = parts[index[k]];
  }
}

template <typename Number, typename End>
void take_ends(In<Number> edge, In<End> end, In<int32_t> place, Array<int32_t> taken) {
  const auto end_at = [&](int64_t k) { return &end[edge[std::min(k, edge.size - 1)]]; };
  for (int64_t k = 0; k < edge.size; ++k) {
    __builtin_prefetch(end_at(k + 2 * kAhead));
    __builtin_prefetch(&place[*end_at(k + kAhead)]);
    taken[k] = place[end[edge[k]]];
  }
}

template <typename Number, typename End>
InnerEdges inner_edges(In<Number> edge, In<End> src, In<End> dst, In<int32_t> owner,
                       In<int32_t> number, int32_t part) {
  Made<int32_t> source(edge.size), target(edge.size);
  int64_t num_inner = 0;
  for (int64_t k = 0; k < edge.size; ++k) {
    const int64_t ahead = edge[std::min(k + 2 * kAhead, edge.size - 1)];
    __builtin_prefetch(&src[ahead]);
    __builtin_prefetch(&dst[ahead]);
    const int64_t near = edge[std::min(k + kAhead, edge.size - 1)];
    __builtin_prefetch(&owner[src[near]]);
    __builtin_prefetch(&owner[dst[near]]);
    const End from = src[edge[k]], to = dst[edge[k]];
    if (from == to || owner[from] != part || owner[to] != part) continue;
    source[num_inner] = number[from];
    target[num_inner] = number[to];
    ++num_inner;
  }
  return {source.shrunk(num_inner), target.shrunk(num_inner)};
}

namespace {

// Where the edges of each row begin. What fills the rows moves the entries on, by one row in all.
template <typename Key>
Made<int64_t> row_starts(int64_t num_rows, int64_t num_edges, const Key& row_of) {
  Made<int64_t> start(num_rows + 1, 0);
  for (int64_t k = 0; k < num_edges; ++k) start[row_of(k) + 1] += 1;
  for (int64_t row = 0; row < num_rows; ++row) start[row + 1] += start[row];
  return start;
}

}  // namespace

namespace {

template <typename Number>
SortedEdges sort_numbered(In<int32_t> row, In<int32_t> column, In<int64_t> order) {
  // An edge beside its row, which would else be looked up all over memory.
  struct Numbered {
    Number edge;
    int32_t row;
  };
  const int64_t num_rows = order.size, num_edges = row.size;
  Made<Numbered> by_column(num_edges);
  Made<int64_t> column_start =
      row_starts(num_rows, num_edges, [&](int64_t k) { return column[k]; });
  Made<int64_t> place = positions(column_start.read(), 0, num_rows);
  for (int64_t k = 0; k < num_edges; ++k) {
    by_column[place[column[k]]++] = {static_cast<Number>(k), row[k]};
  }
  Made<int64_t> indptr = row_starts(num_rows, num_edges, [&](int64_t k) { return row[k]; });
  place = positions(indptr.read(), 0, num_rows);
  Made<int32_t> indices(num_edges);
  Made<int64_t> edge(num_edges);
  for (const int64_t other : order) {
    for (int64_t i = column_start[other]; i < column_start[other + 1]; ++i) {
      const int64_t at = place[by_column[i].row]++;
      indices[at] = static_cast<int32_t>(other);
      edge[at] = by_column[i].edge;
    }
  }
  return {std::move(indptr), std::move(indices), std::move(edge)};
}

}  // namespace

SortedEdges sort_edges(In<int32_t> row, In<int32_t> column, In<int64_t> order) {
  const bool is_narrow = row.size <= std::numeric_limits<int32_t>::max();
  return is_narrow ? sort_numbered<int32_t>(row, column, order)
                   : sort_numbered<int64_t>(row, column, order);
}

SortedEdges transpose_edges(In<int64_t> indptr, In<int32_t> indices, In<int64_t> order) {
  const int64_t num_rows = order.size, num_edges = indices.size;
  Made<int64_t> t_indptr = row_starts(num_rows, num_edges, [&](int64_t k) { return indices[k]; });
  Made<int64_t> place = positions(t_indptr.read(), 0, num_rows), edge(num_edges);
  Made<int32_t> t_indices(num_edges);
  for (const int64_t row : order) {
    for (int64_t k = indptr[row]; k < indptr[row + 1]; ++k) {
      const int64_t at = place[indices[k]]++;
      t_indices[at] = static_cast<int32_t>(row);
      edge[at] = k;
    }
  }
  return {std::move(t_indptr), std::move(t_indices), std::move(edge)};
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
Made<int64_t> edges_of_parts(int64_t first, int64_t last, In<int32_t> part, In<Weight> weight,
                             int64_t num_parts) {
  Made<int64_t> edges(num_parts, 0);
  for (int64_t arc = first; arc < last; ++arc) edges[part[arc]] += weight[arc];
  return edges;
}

template <typename Number>
void group_items(int64_t first, int64_t last, Array<int64_t> position, In<int32_t> part,
                 Array<Number> order) {
  for (int64_t item = first; item < last; ++item) {
    order[position[part[item]]++] = static_cast<Number>(item);
  }
}

template <typename End>
void mark_slots(int64_t first, int64_t last, In<End> vertex, In<int32_t> part,
                int64_t num_vertices, Array<std::uint8_t> is_slot) {
  for (int64_t k = first; k < last; ++k) {
    const std::atomic_ref<std::uint8_t> mark(is_slot[part[k] * num_vertices + vertex[k]]);
    mark.store(1, std::memory_order_relaxed);
  }
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

bool are_together(int64_t first, int64_t last, In<int32_t> mate, In<int32_t> arc_part) {
  int64_t num_together = 0;
  for (int64_t arc = first; arc < last; ++arc) num_together += arc_part[mate[arc]] == arc_part[arc];
  return num_together == last - first;
}

int64_t rows_read(int64_t first, int64_t last, In<int64_t> start, In<int32_t> arc_part,
                  In<int32_t> root_part, int64_t num_parts) {
  // The last vertex that was met in each part.
  Made<int64_t> seen(num_parts, -1);
  int64_t rows = 0;
  for (int64_t vertex = first; vertex < last; ++vertex) {
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

int64_t rows_written(int64_t first, int64_t last, In<int32_t> head, In<int32_t> arc_part,
                     In<int32_t> root_part, Sets is_written) {
  int64_t rows = 0;
  for (int64_t arc = first; arc < last; ++arc) {
    const int32_t vertex = head[arc], part = arc_part[arc];
    if (part != root_part[vertex]) rows += is_written.put_first(vertex, part);
  }
  return rows;
}

Made<int64_t> count_clones(int64_t first, int64_t last, const ArcView& arcs, In<int32_t> arc_part,
                           In<int32_t> root_part, Sets is_there, int64_t num_parts) {
  Made<int64_t> clones(num_parts, 0);
  for (int64_t vertex = first; vertex < last; ++vertex) {
    const int32_t root = root_part[vertex];
    clones[root] += is_there.put_first(vertex, root);
    for (int64_t arc = arcs.start[vertex]; arc < arcs.start[vertex + 1]; ++arc) {
      const int32_t part = arc_part[arc];
      clones[part] += is_there.put_first(vertex, part);
      clones[part] += is_there.put_first(arcs.head[arc], part);
    }
  }
  return clones;
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
  template Made<int64_t> starts_of(In<Number>, int64_t);                                          \
  template Made<int64_t> count_heads(int64_t, int64_t, In<Number>, In<int64_t>, int64_t);         \
  template void sort_by_head(int64_t, int64_t, Array<int64_t>, In<int32_t>, In<int32_t>,          \
                             In<int64_t>, Array<Number>);                                         \
  template void sort_by_head(int64_t, int64_t, Array<int64_t>, In<int64_t>, In<int64_t>,          \
                             In<int64_t>, Array<Number>);                                         \
  template Made<int64_t> count_sources(int64_t, int64_t, In<int64_t>, In<Number>);                \
  template void sort_by_source(int64_t, int64_t, Array<int64_t>, In<int64_t>, In<Number>,         \
                               Array<int32_t>, Array<Number>);                                    \
  template void take_ends(In<Number>, In<int32_t>, In<int32_t>, Array<int32_t>);                  \
  template void take_ends(In<Number>, In<int64_t>, In<int32_t>, Array<int32_t>);                  \
  template InnerEdges inner_edges(In<Number>, In<int32_t>, In<int32_t>, In<int32_t>, In<int32_t>, \
                                  int32_t);                                                       \
  template InnerEdges inner_edges(In<Number>, In<int64_t>, In<int64_t>, In<int32_t>, In<int32_t>, \
                                  int32_t);                                                       \
  template int64_t count_arcs(int64_t, int64_t, const Neighbors<Number>&);                        \
  template void merge_arcs(int64_t, int64_t, int64_t, const Neighbors<Number>&, Array<int64_t>,   \
                           Array<int32_t>, Array<int32_t>, Array<Number>);                        \
  template bool pair_arcs(int64_t, int64_t, In<int64_t>, In<int32_t>, Array<Number>);             \
  template void take_parts(int64_t, int64_t, In<int32_t>, In<Number>, Array<int32_t>);            \
  template int64_t with_mates(int64_t, int64_t, In<int32_t>, In<Number>, bool, Array<int32_t>);   \
  template Made<int64_t> edges_of_parts(int64_t, int64_t, In<int32_t>, In<Number>, int64_t);      \
  template void group_items(int64_t, int64_t, Array<int64_t>, In<int32_t>, Array<Number>);        \
  template void mark_slots(int64_t, int64_t, In<Number>, In<int32_t>, int64_t,                    \
                           Array<std::uint8_t>);
DISTGNN_ARCS(int32_t)
DISTGNN_ARCS(int64_t)
#undef DISTGNN_ARCS

}  // namespace distgnn
