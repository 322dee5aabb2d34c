#include "isa.h"

#include <omp.h>

#include <string_view>

namespace distgnn {

const char* instruction_set() {
#if defined(DISTGNN_HAS_CLONES)
#if __GNUC__ >= 12
  if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4";
  if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3";
#else
  if (__builtin_cpu_supports("avx512f")) return "x86-64-v4";
  if (__builtin_cpu_supports("avx2")) return "x86-64-v3";
#endif
#elif defined(__aarch64__)
  return "neon";
#endif
  return "baseline";
}

int widest_pass() {
  const std::string_view name = instruction_set();
  if (name == "x86-64-v4") return 16;
  return name == "baseline" ? 3 : 6;
}

int num_threads() { return omp_get_max_threads(); }

}  // namespace distgnn
