// Rows of a graph on disk, a slice at a time: vertices that join clusters, and that move between
// parts; partition/large/rows.py, clusters.py and improve.py describe the arrays.
#pragma once

#include "partition_balance.h"

namespace distgnn {

struct RowsView {
  std::int64_t first = 0;
  In<std::int64_t> indptr;
  In<std::int32_t> neighbor;
  In<std::int32_t> weight;
};

struct JoinedView {
  Array<std::int32_t> label;
  Array<std::int64_t> size;
  In<std::int64_t> own;
};
// Lets each vertex of some rows join a cluster, one after another; returns how many changed theirs.
std::int64_t join_clusters(const RowsView& rows, const JoinedView& clusters, std::int64_t most,
                           std::uint64_t seed);
// Lets vertices that are still alone share a cluster with others that would have joined the same.
void gather_alone(const RowsView& rows, const JoinedView& clusters, std::int64_t most,
                  Array<std::int32_t> bins);

struct WeightsView {
  In<std::int64_t> vertices;
  In<std::int64_t> ends;
};
struct PartsView {
  Array<std::int32_t> part;
  Rows2<std::int64_t> load;
  In<std::int64_t> limit;
  Array<std::int64_t> tally;
};
// Lets each vertex of some rows change its part; returns how many did.
std::int64_t change_parts(const RowsView& rows, const PartsView& parts, const WeightsView& sizes,
                          std::int64_t price);

}  // namespace distgnn
