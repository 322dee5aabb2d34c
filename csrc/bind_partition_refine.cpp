#include "bind_partition.h"
#include "partition_placement.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

// The fields in the order of Placement in partition/refine/placement.py.
Placement placement_of(const nb::tuple& given) {
  return {nb::cast<int64_t>(given[0]),
          nb::cast<int64_t>(given[1]),
          field<const int64_t>(given, 2),
          field<const int32_t>(given, 3),
          field<const int32_t>(given, 4),
          field<const int32_t>(given, 5),
          field<int32_t>(given, 6),
          field<const int64_t>(given, 7),
          field<int32_t>(given, 8),
          field<int32_t>(given, 9),
          field<int32_t>(given, 10),
          sets_field(given, 11),
          sets_field(given, 12),
          field<int64_t>(given, 13),
          field<int64_t>(given, 14),
          field<int64_t>(given, 15),
          field<const int32_t>(given, 16),
          field<int64_t>(given, 17),
          field<int64_t>(given, 18),
          field<std::uint8_t>(given, 19)};
}

// The fields in the order of Scratch in partition/refine/scratch.py.
Scratch scratch_of(const nb::tuple& given) {
  return {field<int64_t>(given, 0),       field<int64_t>(given, 1),  field<int64_t>(given, 2),
          field<int32_t>(given, 3),       field<int64_t>(given, 4),  field<int64_t>(given, 5),
          field<uint64_t>(given, 6),      field<uint64_t>(given, 7), field<uint64_t>(given, 8),
          sets_field(given, 9),           field<int64_t>(given, 10), field<int64_t>(given, 11),
          field<const double>(given, 12)};
}

Limits limits_of(const nb::tuple& given) {
  return {nb::cast<int64_t>(given[0]), nb::cast<double>(given[1]), nb::cast<int64_t>(given[2]),
          nb::cast<int64_t>(given[3])};
}

}  // namespace
}  // namespace distgnn

void distgnn::bind_partition_refine(nb::module_& m) {
  using namespace nb::literals;
  define(
      m, "fill_placement",
      [](int64_t first, int64_t last, Fields placement, InVector<int32_t> root_part) {
        const Placement p = placement_of(placement);
        unlocked([&] { fill_placement(first, last, p, view(root_part)); });
      },
      "first"_a, "last"_a, "placement"_a, "root_part");
  define(
      m, "move_unit",
      [](Fields placement, int64_t node, int64_t entry, int64_t part) {
        move_unit(placement_of(placement), node, entry, part);
      },
      "placement"_a, "node"_a, "entry"_a, "part"_a);
  define(
      m, "move_root",
      [](Fields placement, int64_t vertex, int64_t part) {
        move_root(placement_of(placement), vertex, part);
      },
      "placement"_a, "vertex"_a, "part"_a);
  define(
      m, "list_by_part",
      [](Fields placement, Fields scratch, int64_t node) {
        list_by_part(placement_of(placement), scratch_of(scratch), node);
      },
      "placement"_a, "scratch"_a, "node"_a);
  define(
      m, "plan_slot",
      [](Fields placement, Fields scratch, Fields limits, int64_t node, int64_t part,
         int64_t slack) {
        return plan_slot(placement_of(placement), scratch_of(scratch), limits_of(limits), node,
                         part, slack);
      },
      "placement"_a, "scratch"_a, "limits"_a, "node"_a, "part"_a, "slack"_a);
  define(
      m, "added_spread",
      [](Fields placement, Fields scratch, int64_t node, int64_t part) {
        return added_spread(placement_of(placement), scratch_of(scratch), node, part);
      },
      "placement"_a, "scratch"_a, "node"_a, "part"_a);
  define(
      m, "empty_slots",
      [](Fields placement, Fields scratch, Fields limits) {
        const Placement p = placement_of(placement);
        const Scratch s = scratch_of(scratch);
        const Limits most = limits_of(limits);
        return unlocked([&] { return empty_slots(p, s, most); });
      },
      "placement"_a, "scratch"_a, "limits"_a);
  define(
      m, "wander",
      [](Fields placement, Fields scratch, Fields limits, InVector<int64_t> order) {
        const Placement p = placement_of(placement);
        const Scratch s = scratch_of(scratch);
        const Limits most = limits_of(limits);
        unlocked([&] { wander(p, s, most, view(order)); });
      },
      "placement"_a, "scratch"_a, "limits"_a, "order");
  define(
      m, "move_vertices",
      [](Fields placement, Fields scratch, Fields limits, int64_t price,
         int64_t most_rows) {
        const Placement p = placement_of(placement);
        const Scratch s = scratch_of(scratch);
        const Limits most = limits_of(limits);
        return unlocked([&] { return move_vertices(p, s, most, price, most_rows); });
      },
      "placement"_a, "scratch"_a, "limits"_a, "price"_a, "most_rows"_a);
  define(
      m, "drain_for_free",
      [](Fields placement, Fields limits) {
        const Placement p = placement_of(placement);
        const Limits most = limits_of(limits);
        unlocked([&] { drain_for_free(p, most); });
      },
      "placement"_a, "limits"_a);
  define(
      m, "drain_by_slots",
      [](Fields placement, Fields scratch, Fields limits, int64_t least,
         int64_t most_rows) {
        const Placement p = placement_of(placement);
        const Scratch s = scratch_of(scratch);
        const Limits most = limits_of(limits);
        return unlocked([&] { return drain_by_slots(p, s, most, least, most_rows); });
      },
      "placement"_a, "scratch"_a, "limits"_a, "least"_a, "most_rows"_a);
  define(
      m, "begin_elsewhere",
      [](Fields placement, Fields limits, int64_t most_rows) {
        const Placement p = placement_of(placement);
        const Limits most = limits_of(limits);
        return unlocked([&] { return begin_elsewhere(p, most, most_rows); });
      },
      "placement"_a, "limits"_a, "most_rows"_a);
  define(
      m, "empty_crowded",
      [](Fields placement, Fields scratch, Fields limits, int64_t slack,
         int64_t most_rows) {
        const Placement p = placement_of(placement);
        const Scratch s = scratch_of(scratch);
        const Limits most = limits_of(limits);
        unlocked([&] { empty_crowded(p, s, most, slack, most_rows); });
      },
      "placement"_a, "scratch"_a, "limits"_a, "slack"_a, "most_rows"_a);
}
