#include "bind_partition.h"
#include "partition_order.h"

namespace distgnn {
namespace {

using std::int32_t;
using std::int64_t;

}  // namespace
}  // namespace distgnn

void distgnn::bind_partition_order(nb::module_& m) {
  using namespace nb::literals;
  define(
      m, "has_reverses",
      [](InVector<int32_t> src, InVector<int32_t> dst) {
        return unlocked([&] { return has_reverses(view(src), view(dst)); });
      },
      "src", "dst");
  define(
      m, "link_ends",
      [](InVector<int32_t> src, InVector<int32_t> dst, int64_t num_vertices) {
        RootLinks found = unlocked([&] { return link_ends(view(src), view(dst), num_vertices); });
        return std::tuple(numpy(std::move(found.indptr)), numpy(std::move(found.indices)));
      },
      "src", "dst", "num_vertices"_a);
  define(
      m, "merge_communities",
      [](InVector<int64_t> indptr, Vector<int32_t> link, InVector<int64_t> visits) {
        return numpy(
            unlocked([&] { return merge_communities(view(indptr), view(link), view(visits)); }));
      },
      "indptr", "link", "visits");
  define(
      m, "walk_mergers",
      [](InVector<int64_t> parent, InVector<int64_t> visits) {
        return numpy(unlocked([&] { return walk_mergers(view(parent), view(visits)); }));
      },
      "parent", "visits");
  define(
      m, "propagate_labels",
      [](InVector<int64_t> indptr, InVector<int32_t> indices, InVector<int64_t> visits,
         int64_t largest, int64_t num_rounds) {
        return numpy(unlocked([&] {
          return propagate_labels(view(indptr), view(indices), view(visits), largest, num_rounds);
        }));
      },
      "indptr", "indices", "visits", "largest"_a, "num_rounds"_a);
  define(
      m, "count_fetches",
      [](InVector<int64_t> begin, InVector<int64_t> end, InVector<int32_t> indices,
         int64_t num_sources, int64_t num_rows) {
        return unlocked([&] {
          return count_fetches(view(begin), view(end), view(indices), num_sources, num_rows);
        });
      },
      "begin", "end", "indices", "num_sources"_a, "num_rows"_a);
}
