// The compiled module distgnn._kernels: a table of contents. Each family binds itself in
// bind_<family>.cpp, where its arguments are checked; distgnn/kernels.py documents the functions.
#include "bindings.h"

NB_MODULE(_kernels, m) {
  m.doc() = "Shared-memory kernels over CSR graphs and rows; use them through distgnn.kernels.";
  distgnn::bind_isa(m);
  distgnn::bind_spmm(m);
  distgnn::bind_rows(m);
  distgnn::bind_dropout(m);
}
