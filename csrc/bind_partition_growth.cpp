#include "bind_partition.h"
#include "partition_growth.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

}  // namespace
}  // namespace distgnn

void distgnn::bind_partition_growth(nb::module_& m) {
  using namespace nb::literals;
  define(
      m, "vertex_hashes",
      [](int64_t num_vertices, uint64_t seed) {
        return numpy(unlocked([&] { return vertex_hashes(num_vertices, seed); }));
      },
      "num_vertices"_a, "seed"_a);
  define(
      m, "link_keys",
      [](InVector<int64_t> src, InVector<int64_t> dst, uint64_t seed) {
        return numpy(unlocked([&] { return link_keys(view(src), view(dst), seed); }));
      },
      "src", "dst", "seed"_a);
  define(
      m, "spill_edges",
      [](Vector<int32_t> edge_part, InVector<int64_t> order, Vector<int64_t> load, int64_t cap) {
        unlocked([&] { spill_edges(view(edge_part), view(order), view(load), cap); });
      },
      "edge_part", "order", "load", "cap"_a);
  define(
      m, "insert_all",
      [](Matrix<uint64_t> lives_on, InVector<int64_t> vertices, InVector<int32_t> parts) {
        unlocked([&] { insert_all(sets(lives_on), view(vertices), view(parts)); });
      },
      "lives_on", "vertices", "parts");
  define(
      m, "stream_edges",
      [](InVector<int64_t> src, InVector<int64_t> dst, InVector<int64_t> order,
         InVector<int64_t> degree, Vector<int32_t> edge_part, Matrix<uint64_t> lives_on,
         Vector<int64_t> load, int64_t cap, double balance_weight) {
        unlocked([&] {
          stream_edges({view(src), view(dst)}, view(order), view(degree), view(edge_part),
                       sets(lives_on), view(load), cap, balance_weight);
        });
      },
      "src", "dst", "order", "degree", "edge_part", "lives_on", "load", "cap"_a,
      "balance_weight"_a);
  define(
      m, "incident_links",
      [](InVector<int64_t> low, InVector<int64_t> high, InVector<bool> is_listed) {
        Incident found =
            unlocked([&] { return incident_links(view(low), view(high), view(is_listed)); });
        return std::tuple(numpy(std::move(found.start)), numpy(std::move(found.neighbor)),
                          numpy(std::move(found.link)));
      },
      "low", "high", "is_listed");
  define(
      m, "grow_parts",
      [](Fields incidence, InVector<int64_t> weight, InVector<int64_t> seeds, Fields limits,
         Vector<int32_t> link_part) {
        const IncidenceView links{field<const int64_t>(incidence, 0), field<int32_t>(incidence, 1),
                                  field<int64_t>(incidence, 2)};
        const PartLimits most{nb::cast<int64_t>(limits[0]), nb::cast<int64_t>(limits[1]),
                              nb::cast<int64_t>(limits[2]), nb::cast<int64_t>(limits[3])};
        unlocked([&] { grow_parts(links, view(weight), view(seeds), most, view(link_part)); });
      },
      "incidence"_a, "weight", "seeds", "limits"_a, "link_part");
}
