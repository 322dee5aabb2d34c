// Instruction sets: one binary for every x86-64 and aarch64 machine.
//
// DISTGNN_PER_ISA before a leaf function (one without OpenMP regions) compiles it once per
// instruction set; the loader picks the best one the CPU has. The clones give the same bits:
// they differ in the number of lanes over features, never in the order of additions.
// Compile with -DDISTGNN_PER_ISA= to have the code for the compiler's own target only.
#pragma once

#if !defined(DISTGNN_PER_ISA)
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#if __GNUC__ >= 12
#define DISTGNN_PER_ISA \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
// Older compilers do not know the x86-64 levels; these features decide the vector length.
#define DISTGNN_PER_ISA __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#define DISTGNN_HAS_CLONES 1
#else
#define DISTGNN_PER_ISA
#endif
#endif

// Whether the code of the widest instruction set may spell out vdpbf16ps: see has_pairs.
#if (defined(DISTGNN_HAS_CLONES) && __GNUC__ >= 12) || defined(__AVX512BF16__)
#define DISTGNN_KNOWS_PAIRS 1
#endif

// Code shared by several leaf functions: inlined, so that it is compiled for each clone.
#define DISTGNN_INLINE inline __attribute__((always_inline))
#define DISTGNN_LAMBDA_INLINE __attribute__((always_inline))

namespace distgnn {

enum class Isa { kBaseline, kV3, kV4 };

// The instruction set of the clones that run on this CPU; kBaseline where there are none.
Isa isa();

// Name of the instruction set of the clones that run on this CPU: "x86-64-v4", "x86-64-v3",
// "neon" or "baseline".
const char* instruction_set();

// Number of vectors of 16 floats whose sums stay in the registers of this CPU, beside the operands.
int widest_pass();

// Whether this CPU, and this binary, add products of pairs of bfloat16 to floats (vdpbf16ps).
bool has_pairs();

// Bytes of data in the first cache of this CPU; 32 KiB where the system does not tell.
int level_1_bytes();

// Number of threads of the next parallel region of the calling thread.
int num_threads();

}  // namespace distgnn
