#include "bindings.h"
#include "isa.h"

void distgnn::bind_isa(nb::module_& m) {
  m.def("instruction_set", &instruction_set, "Instruction set of the kernels on this CPU.");
  m.def("num_threads", &num_threads, "Threads of the next kernel called from this thread.");
}
