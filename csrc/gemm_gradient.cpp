#include <omp.h>

#include "gemm.h"
#include "panels.h"

namespace distgnn {
namespace {

using std::int64_t;

// Rows that are packed at a time: those of grad and of one factor stay in the second cache.
constexpr int64_t kChunkRows = 96;
// Rows that have sums of their own, at least, and how many such slices there are at most: enough
// for the threads of a socket.
constexpr int64_t kMinSliceRows = 1024;
constexpr int64_t kMaxSlices = 64;
// Values that the sums of all slices may take, unless there is one slice only.
constexpr int64_t kMaxSliceValues = int64_t{1} << 22;
// Columns of grad in a tile of sums: 12 x 2 vectors, or two tiles of 6 x 1.
constexpr int kTileColumns = 12;

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

// Copies a row of x, the number-th of num_rows, cut into panels.
template <typename X, typename T>
DISTGNN_INLINE void pack_row(const X* x, int64_t depth, int64_t number, int64_t num_rows, T* out) {
  for (int64_t column = 0; column < depth;) {
    const int64_t panel_width = panel_vectors<T>(depth, column) * kVectorLanes<T>;
    const int64_t count = std::min(panel_width, depth - column);
    T* to = out + column * num_rows + number * panel_width;
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) to[j] = widen(x[column + j]);
    for (int64_t j = count; j < panel_width; ++j) to[j] = T(0);
    column += panel_width;
  }
}

template <typename T>
DISTGNN_INLINE void pack_rows(const GradientFactor<T>& factor, int64_t begin, int64_t end, T* out) {
  const int64_t depth = factor.depth;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = (factor.rows != nullptr ? factor.rows[row] : row) * depth;
    if (factor.x.is_narrow()) {
      pack_row(factor.x.narrow + first, depth, row - begin, end - begin, out);
    } else {
      pack_row(factor.x.wide + first, depth, row - begin, end - begin, out);
    }
  }
}

template <typename G, typename T>
DISTGNN_INLINE void pass_activation(const G* activation, int64_t width, T scale, G* grad) {
#pragma omp simd
  for (int64_t j = 0; j < width; ++j) {
    const T scaled = static_cast<T>(widen(grad[j])) * scale;
    store(widen(activation[j]) > 0 ? scaled : T(0), grad + j);
  }
}

// Copies rows of grad, cut into tiles of columns, after the activation has passed over them.
template <typename T>
DISTGNN_INLINE void pack_grad(const Gradient<T>& g, int64_t begin, int64_t end, T* out, T* bias,
                              T* own_row) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row * g.width;
    if (g.activation.is_narrow()) {
      pass_activation(g.activation.narrow + first, g.width, g.scale, g.grad.narrow + first);
    } else if (g.activation.is_here()) {
      pass_activation(g.activation.wide + first, g.width, g.scale, g.grad.wide + first);
    }
    const T* grad = widened(g.grad.read(), row, g.width, own_row);
#pragma omp simd
    for (int64_t j = 0; j < g.width; ++j) bias[j] += grad[j];
    int64_t column = 0;
    T* to = out + (row - begin) * kTileColumns;
    for (; column + kTileColumns <= g.width; column += kTileColumns) {
      for (int j = 0; j < kTileColumns; ++j) to[j] = grad[column + j];
      to += (end - begin) * kTileColumns;
    }
    if (column == g.width) continue;
    for (int j = 0; j < kTileColumns; ++j) to[j] = column + j < g.width ? grad[column + j] : T(0);
  }
}

// Adds the products of packed rows to kColumns x kVectors vectors of sums.
template <int kColumns, int kVectors, typename T>
DISTGNN_INLINE void add_tile(const T* grad, const T* x, int64_t num_rows, int64_t panel_width,
                             T* sums) {
  using Vector = typename VectorOf<T>::type;
  constexpr int kLanes = kVectorLanes<T>;
  Vector sum[kColumns][kVectors];
  for (int i = 0; i < kColumns; ++i) {
    for (int j = 0; j < kVectors; ++j) load(sums + i * panel_width + j * kLanes, sum[i][j]);
  }
  for (int64_t k = 0; k < num_rows; ++k, grad += kTileColumns, x += panel_width) {
    Vector y[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      __builtin_prefetch(x + 8 * panel_width + j * kLanes);
      load(x + j * kLanes, y[j]);
    }
#pragma GCC unroll 12
    for (int i = 0; i < kColumns; ++i) {
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) multiply_add(grad[i], y[j], sum[i][j]);
    }
  }
  for (int i = 0; i < kColumns; ++i) {
    for (int j = 0; j < kVectors; ++j) store_vector(sum[i][j], sums + i * panel_width + j * kLanes);
  }
}

// One panel of x against one tile of grad.
template <bool kIsWide, typename T>
DISTGNN_INLINE void add_panel(const T* grad, const T* x, int64_t num_rows, int num_vectors,
                              T* sums) {
  constexpr int kLanes = kVectorLanes<T>;
  const int64_t panel_width = num_vectors * kLanes;
  if (!kIsWide) {
    for (int64_t j = 0; j < panel_width; j += kLanes) {
      add_tile<6, 1>(grad, x + j, num_rows, panel_width, sums + j);
      add_tile<6, 1>(grad + 6, x + j, num_rows, panel_width, sums + 6 * panel_width + j);
    }
  } else if (num_vectors == 2) {
    add_tile<12, 2>(grad, x, num_rows, panel_width, sums);
  } else {
    if (num_vectors == 3) add_tile<12, 2>(grad, x, num_rows, panel_width, sums);
    const int64_t last = panel_width - kLanes;
    add_tile<12, 1>(grad, x + last, num_rows, panel_width, sums + last);
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

template <bool kIsWide, typename T>
DISTGNN_PER_ISA void add_chunk(const Gradient<T>& g, const Shape<T>& shape, int64_t begin,
                               int64_t end, int64_t slice_end, T* sums, T* grad) {
  const int64_t num_rows = end - begin;
  T* packed = grad + kChunkRows * shape.width;
  const int64_t num_tiles = shape.width / kTileColumns * shape.num_panels;
  Ahead ahead{end, std::min(end + kChunkRows, slice_end),
                 std::max<int64_t>(num_tiles / kChunkRows, 1), 0};
  T* own_row = packed + kChunkRows * shape.deepest;
  pack_grad(g, begin, end, grad, sums + shape.width * shape.depth, own_row);
  for (int f = 0; f < g.num_factors; ++f) {
    const GradientFactor<T>& factor = g.factors[f];
    pack_rows(factor, begin, end, packed);
    const int64_t padded_depth = padded<T>(factor.depth);
    for (int64_t column = 0; column < factor.depth;) {
      const int num_vectors = panel_vectors<T>(factor.depth, column);
      for (int64_t tile = 0; tile < shape.width; tile += kTileColumns) {
        prefetch_ahead(g, ahead);
        T* tile_sums = sums + column * shape.width + tile * num_vectors * kVectorLanes<T>;
        add_panel<kIsWide>(grad + tile * num_rows, packed + column * num_rows, num_rows,
                           num_vectors, tile_sums);
      }
      column += num_vectors * kVectorLanes<T>;
    }
    sums += padded_depth * shape.width;
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
  const bool is_wide = widest_pass() >= 16;
  T* packed = workspace + shape.num_slices * shape.slice_size;
#pragma omp parallel for schedule(dynamic) if (shape.num_slices > 1)
  for (int64_t slice = 0; slice < shape.num_slices; ++slice) {
    T* sums = workspace + slice * shape.slice_size;
    std::fill_n(sums, shape.slice_size, T(0));
    T* own = packed + omp_get_thread_num() * shape.thread_size;
    const int64_t begin = slice * shape.slice_rows;
    const int64_t end = std::min(gradient.num_rows, begin + shape.slice_rows);
    for (int64_t row = begin; row < end; row += kChunkRows) {
      const int64_t last = std::min(end, row + kChunkRows);
      if (is_wide) {
        add_chunk<true>(gradient, shape, row, last, end, sums, own);
      } else {
        add_chunk<false>(gradient, shape, row, last, end, sums, own);
      }
    }
  }
#pragma omp parallel for schedule(static) if (shape.num_slices > 1)
  for (int64_t j = 0; j < gradient.width; ++j) add_slices(gradient, shape, j, workspace);
}

template int64_t gradient_workspace(const Gradient<float>&, int);
template int64_t gradient_workspace(const Gradient<double>&, int);
template void multiply_transposed(const Gradient<float>&, float*);
template void multiply_transposed(const Gradient<double>&, double*);

}  // namespace distgnn
