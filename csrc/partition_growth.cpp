// Algorithm: the boundary vertex with the fewest links outside joins the core of the part, and its
//   neighbours join the boundary, until the part is full; a queue has a list per number of links.
// Formula: score of a part in a stream = clones there already, weighed by degree + balance.
// Source: Zhang et al., KDD 2017 (expansion); Petroni et al., CIKM 2015 (HDRF); Steele, Lea and
//   Flood, OOPSLA 2014 (splitmix64).
#include "partition_growth.h"

#include <vector>

namespace distgnn {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

Made<int64_t> vertex_hashes(int64_t num_vertices, uint64_t seed) {
  const uint64_t start = mix(seed);
  Made<int64_t> hashes(num_vertices);
  for (int64_t vertex = 0; vertex < num_vertices; ++vertex) {
    hashes[vertex] = static_cast<int64_t>(mix(start ^ static_cast<uint64_t>(vertex)) >> 1);
  }
  return hashes;
}

Made<uint64_t> link_keys(In<int64_t> src, In<int64_t> dst, uint64_t seed) {
  const uint64_t start = mix(seed);
  Made<uint64_t> keys(src.size);
  for (int64_t edge = 0; edge < src.size; ++edge) {
    const auto low = static_cast<uint64_t>(std::min(src[edge], dst[edge]));
    const auto high = static_cast<uint64_t>(std::max(src[edge], dst[edge]));
    const uint64_t key = mix(mix(start ^ low) ^ high);
    keys[edge] = key << 1 | uint64_t{src[edge] > dst[edge]};
  }
  return keys;
}

void spill_edges(Array<int32_t> edge_part, In<int64_t> order, Array<int64_t> load, int64_t cap) {
  for (int64_t k = order.size - 1; k >= 0; --k) {
    int32_t& part = edge_part[order[k]];
    if (load[part] <= cap) continue;
    const int64_t target = least_at(load);
    load[part] -= 1;
    load[target] += 1;
    part = static_cast<int32_t>(target);
  }
}

void insert_all(Sets lives_on, In<int64_t> vertices, In<int32_t> parts) {
  for (int64_t k = 0; k < vertices.size; ++k) lives_on.put(vertices[k], parts[k]);
}

void stream_edges(const EndsView& edges, In<int64_t> order, In<int64_t> degree,
                  Array<int32_t> edge_part, Sets lives_on, Array<int64_t> load, int64_t cap,
                  double balance_weight) {
  int64_t most = most_of(load), last = -1, part = -1;
  for (const int64_t edge : order) {
    const int64_t u = edges.src[edge], v = edges.dst[edge];
    const bool is_same = last >= 0 && ((u == edges.src[last] && v == edges.dst[last]) ||
                                       (u == edges.dst[last] && v == edges.src[last]));
    if (!is_same || load[part] >= cap) {
      const int64_t least = *std::min_element(load.begin(), load.end());
      const double weight =
          balance_weight / (1.0 + static_cast<double>(most) - static_cast<double>(least));
      const double share =
          static_cast<double>(degree[u]) / static_cast<double>(degree[u] + degree[v]);
      double best = -1.0;
      part = -1;
      for (int64_t p = 0; p < load.size; ++p) {
        if (load[p] >= cap) continue;
        double score = weight * static_cast<double>(most - load[p]);
        if (lives_on.has(u, p)) score += 2.0 - share;
        if (lives_on.has(v, p)) score += 1.0 + share;
        if (score > best) {
          part = p;
          best = score;
        }
      }
    }
    last = edge;
    edge_part[edge] = static_cast<int32_t>(part);
    load[part] += 1;
    most = std::max(most, load[part]);
    lives_on.put(u, part);
    lives_on.put(v, part);
  }
}

Incident incident_links(In<int64_t> low, In<int64_t> high, In<bool> is_listed) {
  Made<int64_t> start(is_listed.size + 1, 0);
  for (int64_t k = 0; k < low.size; ++k) {
    if (low[k] == high[k]) continue;
    start[low[k] + 1] += is_listed[low[k]];
    start[high[k] + 1] += is_listed[high[k]];
  }
  for (int64_t vertex = 0; vertex < is_listed.size; ++vertex) start[vertex + 1] += start[vertex];
  Made<int64_t> place(is_listed.size);
  std::copy_n(start.view().begin(), is_listed.size, place.view().begin());
  const int64_t num_entries = start[is_listed.size];
  Made<int32_t> neighbor(num_entries);
  Made<int64_t> link(num_entries);
  // Twice: a vertex's lower neighbours come before its higher ones.
  for (const bool is_first : {true, false}) {
    for (int64_t k = 0; k < low.size; ++k) {
      const int64_t vertex = is_first ? high[k] : low[k], other = is_first ? low[k] : high[k];
      if (vertex == other || !is_listed[vertex]) continue;
      neighbor[place[vertex]] = static_cast<int32_t>(other);
      link[place[vertex]] = k;
      place[vertex] += 1;
    }
  }
  return {std::move(start), std::move(neighbor), std::move(link)};
}

namespace {

constexpr int32_t kNobody = -1, kUnplaced = -1;

// The part that grows, and what earlier ones left.
class Growth {
 public:
  Growth(const IncidenceView& incidence, In<int64_t> weight, const PartLimits& limits,
         Array<int32_t> link_part)
      : incidence_(incidence),
        weight_(weight),
        limits_(limits),
        link_part_(link_part),
        num_vertices_(incidence.start.size - 1),
        live_(num_vertices_),
        part_of_(num_vertices_, kNobody),
        head_(largest_degree() + 1, kNobody),
        after_(num_vertices_),
        before_(num_vertices_),
        outside_(num_vertices_, -1) {
    for (int64_t vertex = 0; vertex < num_vertices_; ++vertex) {
      live_[vertex] = incidence.start[vertex + 1];
    }
  }

  void grow_all(In<int64_t> seeds) {
    int64_t first = 0;
    for (int64_t part = 0; part < limits_.num_parts; ++part) {
      edges_ = clones_ = lowest_ = 0;
      members_.clear();
      while (first < seeds.size && live_[seeds[first]] == incidence_.start[seeds[first]]) ++first;
      grow(part, seeds, first);
      for (const int64_t member : members_) outside_[member] = -1;
      head_.view().fill(kNobody);
    }
  }

 private:
  int64_t largest_degree() const {
    int64_t largest = 0;
    for (int64_t vertex = 0; vertex + 1 < incidence_.start.size; ++vertex) {
      largest = std::max(largest, incidence_.start[vertex + 1] - incidence_.start[vertex]);
    }
    return largest;
  }

  void grow(int64_t part, In<int64_t> seeds, int64_t seed) {
    bool is_full = false;
    while (!is_full) {
      int64_t vertex = pop();
      if (vertex < 0) {
        if (edges_ >= limits_.share) return;
        while (seed < seeds.size && !can_begin(seeds[seed], part)) ++seed;
        if (seed == seeds.size) return;
        vertex = seeds[seed];
        is_full = !join(vertex, part);
        members_.push_back(vertex);
        if (outside_[vertex] < 0) continue;
        remove(vertex);
      }
      for (int64_t k = incidence_.start[vertex]; k < live_[vertex] && !is_full; ++k) {
        const int64_t other = incidence_.neighbor[k];
        if (part_of_[other] != part) {
          members_.push_back(other);
          is_full = !join(other, part);
        }
        // Vertices outside all cores have no list in which they would find the link.
        if (!is_full && link_part_[incidence_.link[k]] == kUnplaced) {
          is_full = !place(incidence_.link[k], part);
        }
      }
      if (!is_full) live_[vertex] = incidence_.start[vertex];
      is_full = is_full || clones_ >= limits_.clones;
    }
  }

  bool can_begin(int64_t vertex, int64_t part) {
    return part_of_[vertex] != part && live_[vertex] > incidence_.start[vertex];
  }

  // Puts a vertex into the boundary, and the links to the part's vertices into the part; tells
  // whether there was room for all of them.
  bool join(int64_t vertex, int64_t part) {
    part_of_[vertex] = static_cast<int32_t>(part);
    clones_ += 1;
    int64_t kept = incidence_.start[vertex];
    bool is_fitting = true;
    for (int64_t k = incidence_.start[vertex]; k < live_[vertex]; ++k) {
      const int32_t other = incidence_.neighbor[k];
      const int64_t link = incidence_.link[k];
      if (link_part_[link] != kUnplaced) continue;
      if (is_fitting && part_of_[other] == part) {
        is_fitting = place(link, part);
        if (is_fitting) {
          if (outside_[other] > 0) remove_link(other);
          continue;
        }
      }
      incidence_.neighbor[kept] = other;
      incidence_.link[kept] = link;
      ++kept;
    }
    live_[vertex] = kept;
    if (kept > incidence_.start[vertex]) insert(vertex, kept - incidence_.start[vertex]);
    return is_fitting;
  }

  bool place(int64_t link, int64_t part) {
    if (edges_ + weight_[link] > limits_.edges) return false;
    edges_ += weight_[link];
    link_part_[link] = static_cast<int32_t>(part);
    return true;
  }

  void insert(int64_t vertex, int64_t outside) {
    const int32_t following = head_[outside];
    outside_[vertex] = static_cast<int32_t>(outside);
    after_[vertex] = following;
    before_[vertex] = kNobody;
    if (following >= 0) before_[following] = static_cast<int32_t>(vertex);
    head_[outside] = static_cast<int32_t>(vertex);
    lowest_ = std::min(lowest_, outside);
  }

  void remove(int64_t vertex) {
    const int32_t before = before_[vertex], after = after_[vertex];
    if (before >= 0) {
      after_[before] = after;
    } else {
      head_[outside_[vertex]] = after;
    }
    if (after >= 0) before_[after] = before;
    outside_[vertex] = -1;
  }

  // Counts one link less to the outside.
  void remove_link(int64_t vertex) {
    const int64_t outside = outside_[vertex] - 1;
    remove(vertex);
    if (outside > 0) insert(vertex, outside);
  }

  // Takes the boundary vertex with the fewest links outside; -1 if there is none.
  int64_t pop() {
    while (lowest_ < head_.size() && head_[lowest_] < 0) ++lowest_;
    if (lowest_ == head_.size()) return -1;
    const int64_t vertex = head_[lowest_];
    remove(vertex);
    return vertex;
  }

  const IncidenceView incidence_;
  const In<int64_t> weight_;
  const PartLimits limits_;
  const Array<int32_t> link_part_;
  const int64_t num_vertices_;
  // The end of the links of each vertex that may still be unplaced, and the part it joined last.
  Made<int64_t> live_;
  Made<int32_t> part_of_;
  // The queue: the first vertex with each number of links outside, and its neighbours in the list.
  Made<int32_t> head_, after_, before_, outside_;
  std::vector<int64_t> members_;
  int64_t edges_ = 0, clones_ = 0, lowest_ = 0;
};

}  // namespace

void grow_parts(const IncidenceView& incidence, In<int64_t> weight, In<int64_t> seeds,
                const PartLimits& limits, Array<int32_t> link_part) {
  Growth(incidence, weight, limits, link_part).grow_all(seeds);
}

}  // namespace distgnn
