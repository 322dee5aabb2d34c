// Includes the file DISTGNN_BODY once per instruction set, each time in a namespace of its own and
// compiled for that set: for code that spells out its vectors, which function clones cannot do.
// DISTGNN_BEST(call) runs the one for this CPU. A body holds no lambdas (GCC compiles them for the
// baseline) and includes other parts of bodies only. The compiler does not change its macros for
// these sets, so that DISTGNN_VECTOR_BYTES says how wide a vector is.
#include "isa.h"

#if defined(DISTGNN_HAS_CLONES) && __GNUC__ >= 12
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#define DISTGNN_VECTOR_BYTES 64
namespace distgnn::v4 {
namespace {
#include DISTGNN_BODY
}
}  // namespace distgnn::v4
#undef DISTGNN_VECTOR_BYTES
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define DISTGNN_VECTOR_BYTES 32
namespace distgnn::v3 {
namespace {
#include DISTGNN_BODY
}
}  // namespace distgnn::v3
#undef DISTGNN_VECTOR_BYTES
#pragma GCC pop_options
#define DISTGNN_BEST(...)                            \
  switch (isa()) {                                   \
    case Isa::kV4: return distgnn::v4::__VA_ARGS__;  \
    case Isa::kV3: return distgnn::v3::__VA_ARGS__;  \
    default: return distgnn::baseline::__VA_ARGS__;  \
  }
#else
#define DISTGNN_BEST(...) return distgnn::baseline::__VA_ARGS__
#endif

#if defined(__AVX512F__)
#define DISTGNN_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define DISTGNN_VECTOR_BYTES 32
#else
#define DISTGNN_VECTOR_BYTES 16
#endif
namespace distgnn::baseline {
namespace {
#include DISTGNN_BODY
}
}  // namespace distgnn::baseline
#undef DISTGNN_VECTOR_BYTES
