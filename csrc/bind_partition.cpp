// The compiled module distgnn._partitioner: a table of contents. It needs no torch; the modules of
// partition/ that import it document the functions.
#include "bind_partition.h"

NB_MODULE(_partitioner, m) {
  m.doc() = "Steps from edges to a partition directory; use them through distgnn.partition.";
  distgnn::bind_partition_arcs(m);
  distgnn::bind_partition_cover(m);
  distgnn::bind_partition_growth(m);
  distgnn::bind_partition_levels(m);
  distgnn::bind_partition_blocks(m);
  distgnn::bind_partition_order(m);
  distgnn::bind_partition_refine(m);
}
