#include "isa.h"

#include <omp.h>
#include <unistd.h>

namespace distgnn {
namespace {

Isa find_isa() {
#if defined(DISTGNN_HAS_CLONES)
#if __GNUC__ >= 12
  if (__builtin_cpu_supports("x86-64-v4")) return Isa::kV4;
  if (__builtin_cpu_supports("x86-64-v3")) return Isa::kV3;
#else
  if (__builtin_cpu_supports("avx512f")) return Isa::kV4;
  if (__builtin_cpu_supports("avx2")) return Isa::kV3;
#endif
#endif
  return Isa::kBaseline;
}

int find_level_1_bytes() {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  const long told = sysconf(_SC_LEVEL1_DCACHE_SIZE);
  if (told > 0) return static_cast<int>(told);
#endif
  return 32768;
}

}  // namespace

Isa isa() {
  static const Isa found = find_isa();
  return found;
}

const char* instruction_set() {
#if defined(__aarch64__)
  return "neon";
#endif
  if (isa() == Isa::kV4) return "x86-64-v4";
  return isa() == Isa::kV3 ? "x86-64-v3" : "baseline";
}

bool has_pairs() {
#if defined(DISTGNN_HAS_CLONES) && __GNUC__ >= 12
  static const bool found = isa() == Isa::kV4 && __builtin_cpu_supports("avx512bf16");
  return found;
#elif defined(DISTGNN_KNOWS_PAIRS)
  return true;
#else
  return false;
#endif
}

int widest_pass() {
#if defined(DISTGNN_HAS_CLONES) && __GNUC__ < 12
  return 3;  // per_isa.h then has the baseline alone, whatever the processor is.
#endif
  if (isa() == Isa::kV4) return 16;
  return isa() == Isa::kV3 ? 6 : 3;
}

int level_1_bytes() {
  static const int found = find_level_1_bytes();
  return found;
}

int num_threads() { return omp_get_max_threads(); }

}  // namespace distgnn
