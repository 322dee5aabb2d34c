#include "bind_partition.h"
#include "partition_blocks.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

// The fields in the order of _Blocks and _State in partition/methods/blocks.py.
BlocksView blocks_of(const nb::tuple& given) {
  return {field<const double>(given, 0), matrix_field<const int64_t>(given, 1),
          matrix_field<const int64_t>(given, 2), field<const int64_t>(given, 3)};
}
BlockState state_of(const nb::tuple& given) {
  return {field<int64_t>(given, 0), matrix_field<int64_t>(given, 1), field<int64_t>(given, 2),
          field<double>(given, 3),  field<double>(given, 4),         field<double>(given, 5)};
}

}  // namespace
}  // namespace distgnn

void distgnn::bind_partition_blocks(nb::module_& m) {
  using namespace nb::literals;
  define(
      m, "light_weights",
      [](Fields adjacency, double hub) {
        const Links links = links_of(adjacency);
        return numpy(unlocked([&] { return light_weights(links, hub); }));
      },
      "adjacency"_a, "hub"_a);
  define(
      m, "edges_beside",
      [](Fields adjacency, double hub) {
        const Links links = links_of(adjacency);
        return numpy(unlocked([&] { return edges_beside(links, hub); }));
      },
      "adjacency"_a, "hub"_a);
  define(
      m, "drain_vertices",
      [](Fields adjacency, Vector<int32_t> part, Matrix<const double> share,
         Matrix<double> load) {
        const Links links = links_of(adjacency);
        return unlocked([&] { return drain_vertices(links, view(part), view(share), view(load)); });
      },
      "adjacency"_a, "part", "share", "load");
  define(
      m, "count_blocks",
      [](Fields adjacency, InVector<int32_t> label, Matrix<int64_t> ends,
         Matrix<int64_t> edges) {
        const Links links = links_of(adjacency);
        unlocked([&] { count_blocks(links, view(label), view(ends), view(edges)); });
      },
      "adjacency"_a, "label", "ends", "edges");
  define(
      m, "spread_blocks",
      [](InVector<int64_t> start, InVector<int32_t> head, InVector<int32_t> label,
         Matrix<const int32_t> part_of) {
        return numpy(unlocked([&] {
          return spread_blocks({view(start), view(head)}, view(label), view(part_of));
        }));
      },
      "start", "head", "label", "part_of");
  define(
      m, "note_clusters",
      [](InVector<int64_t> start, InVector<int32_t> head, InVector<int32_t> label, int64_t step,
         Matrix<uint64_t> heads, Matrix<uint64_t> tails) {
        unlocked([&] {
          note_clusters({view(start), view(head)}, view(label), step, sets(heads), sets(tails));
        });
      },
      "start", "head", "label", "step"_a, "heads", "tails");
  define(
      m, "count_rows",
      [](InVector<int32_t> label, Matrix<uint64_t> heads, Matrix<uint64_t> tails,
         Matrix<const int32_t> part_of, int64_t num_parts) {
        return unlocked([&] {
          return count_rows(view(label), sets(heads), sets(tails), view(part_of), num_parts);
        });
      },
      "label", "heads", "tails", "part_of", "num_parts"_a);
  define(
      m, "begin_blocks",
      [](Fields blocks, Fields state, InVector<int64_t> order) {
        const BlocksView links = blocks_of(blocks);
        const BlockState begun = state_of(state);
        unlocked([&] { begin_blocks(links, begun, view(order)); });
      },
      "blocks"_a, "state"_a, "order");
  define(
      m, "anneal_blocks",
      [](Fields blocks, Fields state, double most_load, int64_t sweeps, uint64_t start,
         Fields schedule) {
        const BlocksView links = blocks_of(blocks);
        const BlockState begun = state_of(state);
        const auto number = [&](std::size_t at) { return nb::cast<double>(schedule[at]); };
        const Schedule steps{number(0), number(1), number(2), number(3), number(4), number(5)};
        unlocked([&] { anneal_blocks(links, begun, most_load, sweeps, start, steps); });
      },
      "blocks"_a, "state"_a, "most_load"_a, "sweeps"_a, "start"_a, "schedule"_a);
}
