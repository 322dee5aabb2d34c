#include <omp.h>

#include <type_traits>

#include "gemm.h"
#include "gemm_tile.h"
#include "panels.h"

namespace distgnn {
namespace {

using std::int64_t;

// Rows that are packed at a time: those of grad and of one factor stay in the second cache. Pairs
// take half the space. Slices begin at multiples of the first, so pairs are the same in both.
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

// How a gradient is divided, by its shape alone.
template <typename T>
struct Shape {
  explicit Shape(const Gradient<T>& g)
      : width(rounded(g.width, kTileColumns)),
        depth(0),
        deepest(0),
        num_panels(0),
        num_slices(0),
        slice_rows(0) {
    for (int f = 0; f < g.num_factors; ++f) {
      depth += padded<T>(g.factors[f].depth);
      deepest = std::max(deepest, padded<T>(g.factors[f].depth));
      num_panels += (g.factors[f].depth - 1) / (kPanelVectors * kVectorLanes<T>) + 1;
    }
    slice_size = width * depth + width;
    num_slices = (g.num_rows + kMinSliceRows - 1) / kMinSliceRows;
    num_slices = std::min({num_slices, kMaxSlices, kMaxSliceValues / slice_size});
    num_slices = std::max<int64_t>(num_slices, 1);
    slice_rows = rounded((g.num_rows + num_slices - 1) / num_slices, kChunkRows);
    thread_size = kChunkRows * (deepest + width) + padded<T>(width);
  }
  int64_t width;  // of grad, padded
  int64_t depth;  // of all factors, padded
  int64_t deepest;  // of one, padded
  int64_t num_panels;  // of all factors, at most
  int64_t num_slices;
  int64_t slice_rows;
  int64_t slice_size;  // sums of a slice: a panel after the other, a tile after the other; bias
  int64_t thread_size;  // packed rows of grad, and of one factor after the other; a row of grad
};

// Whether rows are taken in pairs.
template <typename T>
bool is_paired(const Gradient<T>& g) {
  bool is_narrow = g.num_factors > 0 && g.grad.is_narrow();
  for (int f = 0; f < g.num_factors; ++f) is_narrow = is_narrow && g.factors[f].x.is_narrow();
  return is_narrow;
}

// Where rows are packed to: steps of a walk over them, one after the other.
template <typename E>
struct Packed {
  E* entries;
  int64_t num_steps;
};

// Copies a row of x, as that step, cut into panels.
template <typename X, typename T>
DISTGNN_INLINE void pack_row(const X* x, int64_t depth, int64_t step, const Packed<T>& out) {
  for (int64_t column = 0; column < depth;) {
    const int64_t panel_width = panel_vectors<T>(depth, column) * kVectorLanes<T>;
    const int64_t count = std::min(panel_width, depth - column);
    T* to = out.entries + column * out.num_steps + step * panel_width;
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) to[j] = widen(x[column + j]);
    for (int64_t j = count; j < panel_width; ++j) to[j] = T(0);
    column += panel_width;
  }
}

// Copies two rows of x, as pairs; the second may be missing.
DISTGNN_INLINE void pack_pair(const Bf16* first, const Bf16* second, int64_t depth, int64_t step,
                              const Packed<Pair>& out) {
  for (int64_t column = 0; column < depth;) {
    const int64_t panel_width = panel_vectors<Pair>(depth, column) * kVectorLanes<Pair>;
    const int64_t count = std::min(panel_width, depth - column);
    Pair* to = out.entries + column * out.num_steps + step * panel_width;
    if (second != nullptr) {
#pragma omp simd
      for (int64_t j = 0; j < count; ++j) to[j] = pair_of(first[column + j], second[column + j]);
    } else {
      for (int64_t j = 0; j < count; ++j) to[j] = pair_of(first[column + j], Bf16{0});
    }
    for (int64_t j = count; j < panel_width; ++j) to[j] = Pair{0};
    column += panel_width;
  }
}

// The place of row `row` of x.
template <typename T>
DISTGNN_INLINE int64_t place_of(const GradientFactor<T>& factor, int64_t row) {
  return (factor.rows != nullptr ? factor.rows[row] : row) * factor.depth;
}

template <typename T>
DISTGNN_INLINE void pack_rows(const GradientFactor<T>& factor, int64_t begin, int64_t,
                              bool in_pairs, const Packed<T>& out) {
  for (int64_t step = 0; step < out.num_steps; ++step) {
    const int64_t row = begin + (in_pairs ? swapped(step, out.num_steps) : step);
    if (factor.x.is_narrow()) {
      pack_row(factor.x.narrow + place_of(factor, row), factor.depth, step, out);
    } else {
      pack_row(factor.x.wide + place_of(factor, row), factor.depth, step, out);
    }
  }
}
DISTGNN_INLINE void pack_rows(const GradientFactor<float>& factor, int64_t begin, int64_t end, bool,
                              const Packed<Pair>& out) {
  for (int64_t row = begin; row < end; row += 2) {
    const Bf16* first = factor.x.narrow + place_of(factor, row);
    const Bf16* second =
        row + 1 < end ? factor.x.narrow + place_of(factor, row + 1) : nullptr;
    pack_pair(first, second, factor.depth, (row - begin) / 2, out);
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

// Copies rows of grad, cut into tiles of columns.
template <typename T>
DISTGNN_INLINE void pack_grad(const Gradient<T>& g, int64_t begin, int64_t end, bool in_pairs,
                              const Packed<T>& out, T* bias, T* own_row) {
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
                              const Packed<Pair>& out, float* bias, float* own_row) {
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

// The rows of the next chunk, asked for a few at a time while this one is worked on.
struct Ahead {
  int64_t row;
  int64_t end;
  int64_t tiles_per_row;
  int64_t num_tiles;
};

template <typename T>
DISTGNN_INLINE void prefetch_ahead(const Gradient<T>& g, Ahead& ahead) {
  if (++ahead.num_tiles % ahead.tiles_per_row != 0 || ahead.row >= ahead.end) return;
  const int64_t row = ahead.row++;
  prefetch_row(g.grad.read(), row, g.width);
  if (g.activation.is_here()) prefetch_row(g.activation, row, g.width);
  for (int f = 0; f < g.num_factors; ++f) {
    const GradientFactor<T>& factor = g.factors[f];
    prefetch_row(factor.x, factor.rows != nullptr ? factor.rows[row] : row, factor.depth);
  }
}

template <typename E, typename T>
DISTGNN_INLINE void add_rows(const Gradient<T>& g, const Shape<T>& shape, int64_t begin,
                             int64_t end, int64_t slice_end, T* sums, T* workspace) {
  const bool in_pairs = is_paired(g);
  const int64_t steps = num_steps<E>(end - begin);
  const Packed<E> grad{reinterpret_cast<E*>(workspace), steps};
  const Packed<E> packed{reinterpret_cast<E*>(workspace + kChunkRows * shape.width), steps};
  T* own_row = workspace + kChunkRows * (shape.width + shape.deepest);
  const int64_t num_tiles = shape.width / kTileColumns * shape.num_panels;
  Ahead ahead{end, std::min(end + kRowsOfChunk<E>, slice_end),
              std::max<int64_t>(num_tiles / kRowsOfChunk<E>, 1), 0};
  pack_grad(g, begin, end, in_pairs, grad, sums + shape.width * shape.depth, own_row);
  const Flushing flushing(in_pairs);
  for (int f = 0; f < g.num_factors; ++f) {
    const GradientFactor<T>& factor = g.factors[f];
    pack_rows(factor, begin, end, in_pairs, packed);
    for (int64_t column = 0; column < factor.depth;) {
      const int num_vectors = panel_vectors<T>(factor.depth, column);
      for (int64_t tile = 0; tile < shape.width; tile += kTileColumns) {
        prefetch_ahead(g, ahead);
        T* tile_sums = sums + column * shape.width + tile * num_vectors * kVectorLanes<T>;
        const Walk<E, T> walk{packed.entries + column * steps, steps, num_vectors, tile_sums};
        walk_columns(grad.entries + tile * steps, walk);
      }
      column += num_vectors * kVectorLanes<T>;
    }
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
      const int64_t panel_width = panel_vectors<T>(factor.depth, column) * kVectorLanes<T>;
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
