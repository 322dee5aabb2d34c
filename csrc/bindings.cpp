// The compiled module distgnn._kernels: a table of contents. Each family binds itself in
// bind_<family>.cpp, where its arguments are checked; the modules of distgnn/ that import it
// document the functions.
#include "bindings.h"

NB_MODULE(_kernels, m) {
  // A script whose variables hold a graph when it ends holds a walk order then, which is no leak.
  nanobind::set_leak_warnings(false);
  m.doc() = "Shared-memory kernels over CSR graphs and rows; use them through distgnn.kernels.";
  distgnn::bind_isa(m);
  distgnn::bind_checksum(m);
  distgnn::bind_walk_order(m);
  distgnn::bind_spmm(m);
  distgnn::bind_extreme(m);
  distgnn::bind_attention(m);
  distgnn::bind_heads(m);
  distgnn::bind_rows(m);
  distgnn::bind_codec(m);
  distgnn::bind_dropout(m);
  distgnn::bind_cross_entropy(m);
  distgnn::bind_gemm(m);
  distgnn::bind_norm(m);
  distgnn::bind_roof(m);
}
