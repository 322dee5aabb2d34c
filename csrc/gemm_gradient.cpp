// Algorithm: slices of rows have sums of their own, which are added in order.
// Formula: dW = x^T grad and db = column sums of grad, of the gradient before what follows a
//   product.
// Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
#include <omp.h>

#include <type_traits>

#include "gemm.h"
#include "gemm_tile.h"
#include "panels.h"

namespace distgnn {
namespace {

using std::int64_t;

// Rows that are walked at a time: those of grad and of one factor stay in the second cache, and
// what a panel needs of them in the first. Pairs take half the space. Slices begin at multiples of
// the first, so pairs are the same in both.
constexpr int64_t kChunkRows = 96;
template <typename E>
inline constexpr int64_t kRowsOfChunk = std::is_same_v<E, Pair> ? 2 * kChunkRows : kChunkRows;
// Rows that have sums of their own, at least, and how many such slices there are at most: enough
// for the threads of a socket.
constexpr int64_t kMinSliceRows = 1024;
constexpr int64_t kMaxSlices = 64;
// Values that the sums of all slices may take, unless there is one slice only.
constexpr int64_t kMaxSliceValues = int64_t{1} << 22;

int64_t rounded(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Columns of a row in whole vectors; those behind them, if any, are a panel of one vector.
template <typename T>
DISTGNN_INLINE int64_t whole(int64_t depth) {
  return depth / kVectorLanes<T> * kVectorLanes<T>;
}

// Vectors in the panel of a factor that begins at a column: four are two and two, because a panel
// of one is slow.
template <typename T>
DISTGNN_INLINE int vectors_at(int64_t depth, int64_t column) {
  const int64_t left = (whole<T>(depth) - column) / kVectorLanes<T>;
  if (left == kMaxRowVectors + 1) return 2;
  return static_cast<int>(std::clamp<int64_t>(left, 1, kMaxRowVectors));
}

// Whether rows are copied: to be widened, or because so many of them would share sets of the first
// cache that it could not hold those of a chunk, where they are read often enough for it to matter.
template <typename T>
DISTGNN_INLINE bool is_copied(const Gradient<T>& g, const GradientFactor<T>& factor) {
  constexpr int64_t kSharedBytes = 512, kManyColumns = 4 * kTileColumns;
  const bool is_shared = factor.depth * sizeof(T) % kSharedBytes == 0 && g.width > kManyColumns;
  return factor.x.is_narrow() || is_shared;
}

// How a gradient is divided, by its shape alone.
template <typename T>
struct Shape {
  explicit Shape(const Gradient<T>& g)
      : width(rounded(g.width, kTileColumns)),
        depth(0),
        taken(kVectorLanes<T>),
        num_slices(0),
        slice_rows(0) {
    for (int f = 0; f < g.num_factors; ++f) {
      depth += padded<T>(g.factors[f].depth);
      if (is_copied(g, g.factors[f])) taken = std::max(taken, stride<T>(g.factors[f].depth));
    }
    slice_size = width * depth + width;
    num_slices = (g.num_rows + kMinSliceRows - 1) / kMinSliceRows;
    num_slices =
        std::min({num_slices, kMaxSlices, kMaxSliceValues / std::max<int64_t>(slice_size, 1)});
    num_slices = std::max<int64_t>(num_slices, 1);
    slice_rows = rounded((g.num_rows + num_slices - 1) / num_slices, kChunkRows);
    thread_size = kChunkRows * (taken + width) + padded<T>(width);
  }
  int64_t width;  // of grad, padded
  int64_t depth;  // of all factors, padded
  int64_t taken;  // values of a row of a factor that are copied, at most
  int64_t num_slices;
  int64_t slice_rows;
  int64_t slice_size;  // sums of a slice: a panel after the other, a tile after the other; bias
  int64_t thread_size;  // packed rows of grad; what is copied of a factor's rows; a row of grad
};

// Whether rows are taken in pairs.
template <typename T>
bool is_paired(const Gradient<T>& g) {
  bool is_narrow = g.num_factors > 0 && g.grad.is_narrow();
  for (int f = 0; f < g.num_factors; ++f) is_narrow = is_narrow && g.factors[f].x.is_narrow();
  return is_narrow;
}

// Rows of one factor as a walk takes them, step by step, and the rows that the next chunk will
// need.
template <typename E>
struct Chunk {
  int64_t num_steps;
  const E* x[kChunkRows];
  const E* rest[kChunkRows];  // the vector behind the whole ones, padded with zeros
  const char* coming[2 * kChunkRows];
};

template <typename T>
DISTGNN_INLINE int64_t number_of(const GradientFactor<T>& factor, int64_t row) {
  return factor.rows != nullptr ? factor.rows[row] : row;
}

template <typename T, typename E>
DISTGNN_INLINE void find_coming(const GradientFactor<T>& factor, int64_t begin, int64_t end,
                                int64_t slice_end, Chunk<E>& chunk) {
  for (int64_t row = end; row < end + (end - begin); ++row) {
    const int64_t at = number_of(factor, std::min(row, slice_end - 1)) * factor.depth;
    chunk.coming[row - end] = place_of(factor.x, at);
  }
}

// Finds the rows of a chunk: where they lie, unless they are copied.
template <typename T>
DISTGNN_INLINE void find_rows(const GradientFactor<T>& factor, int64_t begin, bool in_pairs,
                              bool copied, T* copies, Chunk<T>& chunk) {
  const int64_t depth = factor.depth, first = whole<T>(depth);
  for (int64_t i = 0; i < chunk.num_steps; ++i) {
    const int64_t row = begin + (in_pairs ? swapped(i, chunk.num_steps) : i);
    T* own = copies + i * (copied ? stride<T>(depth) : kVectorLanes<T>);
    const T* x = widened(factor.x, number_of(factor, row), depth, own);
    if (copied && x != own) x = std::copy_n(x, depth, own) - depth;
    T* rest = copied ? own + first : own;
    for (int64_t j = 0; j < kVectorLanes<T>; ++j) rest[j] = first + j < depth ? x[first + j] : T(0);
    chunk.x[i] = x;
    chunk.rest[i] = rest;
  }
}

// Copies two rows as pairs. The second may be missing.
DISTGNN_INLINE void pair_rows(const Bf16* first, const Bf16* second, int64_t depth, Pair* out) {
  if (second != nullptr) {
#pragma omp simd
    for (int64_t j = 0; j < depth; ++j) out[j] = pair_of(first[j], second[j]);
  } else {
    for (int64_t j = 0; j < depth; ++j) out[j] = pair_of(first[j], Bf16{0});
  }
  std::fill(out + depth, out + padded<Pair>(depth), Pair{0});
}

DISTGNN_INLINE void find_rows(const GradientFactor<float>& factor, int64_t begin, int64_t end,
                              Pair* copies, Chunk<Pair>& chunk) {
  const int64_t depth = factor.depth;
  for (int64_t i = 0; i < chunk.num_steps; ++i) {
    const int64_t row = begin + 2 * i;
    Pair* own = copies + i * stride<Pair>(depth);
    const Bf16* first = factor.x.narrow + number_of(factor, row) * depth;
    const Bf16* second =
        row + 1 < end ? factor.x.narrow + number_of(factor, row + 1) * depth : nullptr;
    pair_rows(first, second, depth, own);
    chunk.x[i] = own;
    chunk.rest[i] = own + whole<Pair>(depth);
  }
}

template <typename G, typename T>
DISTGNN_INLINE void pass_activation(const G* activation, int64_t width, T scale, G* grad) {
#pragma omp simd
  for (int64_t j = 0; j < width; ++j) {
    store(through_activation(static_cast<T>(widen(grad[j])), activation[j], scale), grad + j);
  }
}

// Passes the activation over rows of grad, and adds them to the gradient of the bias.
template <typename T>
DISTGNN_INLINE const T* read_grad(const Gradient<T>& g, int64_t row, T* bias, T* own_row) {
  const int64_t first = row * g.width;
  if (g.activation.is_narrow()) {
    pass_activation(g.activation.narrow + first, g.width, g.scale, g.grad.narrow + first);
  } else if (g.activation.is_here()) {
    pass_activation(g.activation.wide + first, g.width, g.scale, g.grad.wide + first);
  }
  const T* grad = widened(g.grad.read(), row, g.width, own_row);
#pragma omp simd
  for (int64_t j = 0; j < g.width; ++j) bias[j] += grad[j];
  return grad;
}

// Rows of grad, cut into tiles of columns: steps of a walk, one after the other.
template <typename E>
struct PackedGrad {
  E* entries;
  int64_t num_steps;
};

template <typename T>
DISTGNN_INLINE void pack_grad(const Gradient<T>& g, int64_t begin, int64_t end, bool in_pairs,
                              const PackedGrad<T>& out, T* bias, T* own_row) {
  for (int64_t row = begin; row < end; ++row) {
    const T* grad = read_grad(g, row, bias, own_row);
    const int64_t step = in_pairs ? swapped(row - begin, end - begin) : row - begin;
    int64_t column = 0;
    T* to = out.entries + step * kTileColumns;
    for (; column + kTileColumns <= g.width; column += kTileColumns) {
      for (int j = 0; j < kTileColumns; ++j) to[j] = grad[column + j];
      to += out.num_steps * kTileColumns;
    }
    if (column == g.width) continue;
    for (int j = 0; j < kTileColumns; ++j) to[j] = column + j < g.width ? grad[column + j] : T(0);
  }
}
DISTGNN_INLINE void pack_grad(const Gradient<float>& g, int64_t begin, int64_t end, bool,
                              const PackedGrad<Pair>& out, float* bias, float* own_row) {
  for (int64_t row = begin; row < end; row += 2) {
    for (int64_t i = row; i < std::min(row + 2, end); ++i) read_grad(g, i, bias, own_row);
    const Bf16* first = g.grad.narrow + row * g.width;
    const Bf16* second = row + 1 < end ? first + g.width : nullptr;
    Pair* to = out.entries + (row - begin) / 2 * kTileColumns;
    for (int64_t column = 0; column < g.width; column += kTileColumns) {
      for (int j = 0; j < kTileColumns; ++j) {
        const bool is_inside = column + j < g.width;
        const Bf16 one = is_inside ? first[column + j] : Bf16{0};
        to[j] = pair_of(one, is_inside && second != nullptr ? second[column + j] : Bf16{0});
      }
      to += out.num_steps * kTileColumns;
    }
  }
}

// Adds what one factor's rows of a chunk make with the packed ones of grad.
template <typename E, typename T>
DISTGNN_INLINE void add_factor(const GradientFactor<T>& factor, const Chunk<E>& chunk,
                               const E* grad, int64_t width, T* sums) {
  const int64_t entry_bytes = value_bytes(factor.x);
  for (int64_t column = 0; column < factor.depth;) {
    const int num_vectors = vectors_at<T>(factor.depth, column);
    const bool is_rest = column >= whole<T>(factor.depth);
    for (int64_t tile = 0; tile < width; tile += kTileColumns) {
      T* tile_sums = sums + column * width + tile * num_vectors * kVectorLanes<T>;
      const ComingRows ahead{tile == 0 ? chunk.coming : nullptr, entry_bytes, column};
      walk_rows(RowWalk<E, T>{grad + tile * chunk.num_steps, is_rest ? chunk.rest : chunk.x,
                              is_rest ? 0 : column, chunk.num_steps, num_vectors, tile_sums,
                              ahead});
    }
    column += num_vectors * kVectorLanes<T>;
  }
}

template <typename E, typename T>
DISTGNN_INLINE void add_rows(const Gradient<T>& g, const Shape<T>& shape, int64_t begin,
                             int64_t end, int64_t slice_end, T* sums, T* workspace) {
  const bool in_pairs = is_paired(g);
  Chunk<E> chunk;
  chunk.num_steps = num_steps<E>(end - begin);
  const PackedGrad<E> grad{reinterpret_cast<E*>(workspace), chunk.num_steps};
  E* copies = reinterpret_cast<E*>(workspace + kChunkRows * shape.width);
  T* own_row = workspace + kChunkRows * (shape.width + shape.taken);
  pack_grad(g, begin, end, in_pairs, grad, sums + shape.width * shape.depth, own_row);
  const Flushing flushing(in_pairs);
  for (int f = 0; f < g.num_factors; ++f) {
    const GradientFactor<T>& factor = g.factors[f];
    find_coming(factor, begin, end, slice_end, chunk);
    if constexpr (std::is_same_v<E, Pair>) {
      find_rows(factor, begin, end, copies, chunk);
    } else {
      find_rows(factor, begin, in_pairs, is_copied(g, factor), copies, chunk);
    }
    add_factor(factor, chunk, grad.entries, shape.width, sums);
    sums += padded<T>(factor.depth) * shape.width;
  }
}

template <typename T>
DISTGNN_PER_ISA void add_chunk(const Gradient<T>& g, const Shape<T>& shape, int64_t begin,
                               int64_t end, int64_t slice_end, T* sums, T* workspace) {
  add_rows<T>(g, shape, begin, end, slice_end, sums, workspace);
}

DISTGNN_PER_ISA void add_pairs(const Gradient<float>& g, const Shape<float>& shape, int64_t begin,
                               int64_t end, int64_t slice_end, float* sums, float* workspace) {
  add_rows<Pair>(g, shape, begin, end, slice_end, sums, workspace);
}

// Sums of the rows of a slice.
template <typename T>
void add_slice(const Gradient<T>& g, const Shape<T>& shape, int64_t begin, int64_t end, T* sums,
               T* workspace) {
  if constexpr (std::is_same_v<T, float>) {
    if (is_paired(g) && has_pairs()) {
      for (int64_t row = begin; row < end; row += kRowsOfChunk<Pair>) {
        add_pairs(g, shape, row, std::min(end, row + kRowsOfChunk<Pair>), end, sums, workspace);
      }
      return;
    }
  }
  for (int64_t row = begin; row < end; row += kChunkRows) {
    add_chunk(g, shape, row, std::min(end, row + kChunkRows), end, sums, workspace);
  }
}

// Column `j` of the gradients: the sums of all slices, in order.
template <typename T>
DISTGNN_PER_ISA void add_slices(const Gradient<T>& g, const Shape<T>& shape, int64_t j,
                                const T* workspace) {
  int64_t start = 0;
  for (int f = 0; f < g.num_factors; ++f) {
    const GradientFactor<T>& factor = g.factors[f];
    T* out = factor.gradient + j * factor.depth;
    for (int64_t column = 0; column < factor.depth;) {
      const int64_t panel_width = vectors_at<T>(factor.depth, column) * kVectorLanes<T>;
      const int64_t count = std::min(panel_width, factor.depth - column);
      const T* sums = workspace + start + column * shape.width + j * panel_width;
      for (int64_t k = 0; k < count; ++k) out[column + k] = sums[k];
      for (int64_t slice = 1; slice < shape.num_slices; ++slice) {
        sums += shape.slice_size;
#pragma omp simd
        for (int64_t k = 0; k < count; ++k) out[column + k] += sums[k];
      }
      column += panel_width;
    }
    start += padded<T>(factor.depth) * shape.width;
  }
  if (g.bias_gradient == nullptr) return;
  T total = workspace[start + j];
  for (int64_t slice = 1; slice < shape.num_slices; ++slice) {
    total += workspace[slice * shape.slice_size + start + j];
  }
  g.bias_gradient[j] = total;
}

}  // namespace

template <typename T>
int64_t gradient_workspace(const Gradient<T>& gradient, int num_threads) {
  const Shape<T> shape(gradient);
  return shape.num_slices * shape.slice_size + num_threads * shape.thread_size;
}

template <typename T>
void multiply_transposed(const Gradient<T>& gradient, T* workspace) {
  const Shape<T> shape(gradient);
  T* packed = workspace + shape.num_slices * shape.slice_size;
#pragma omp parallel for schedule(dynamic) if (shape.num_slices > 1)
  for (int64_t slice = 0; slice < shape.num_slices; ++slice) {
    T* sums = workspace + slice * shape.slice_size;
    std::fill_n(sums, shape.slice_size, T(0));
    T* own = packed + omp_get_thread_num() * shape.thread_size;
    const int64_t begin = slice * shape.slice_rows;
    const int64_t end = std::min(gradient.num_rows, begin + shape.slice_rows);
    add_slice(gradient, shape, begin, end, sums, own);
  }
#pragma omp parallel for schedule(static) if (shape.num_slices > 1)
  for (int64_t j = 0; j < gradient.width; ++j) add_slices(gradient, shape, j, workspace);
}

template int64_t gradient_workspace(const Gradient<float>&, int);
template int64_t gradient_workspace(const Gradient<double>&, int);
template void multiply_transposed(const Gradient<float>&, float*);
template void multiply_transposed(const Gradient<double>&, double*);

}  // namespace distgnn
