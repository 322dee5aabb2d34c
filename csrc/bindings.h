// What the binding files share: array types and the checks of their shapes.
//
// Every array argument is bound with noconvert: a converted copy of an output would swallow the
// result. The Python side (distgnn/kernels/) has already checked dtypes and contiguity with
// better messages; here is what keeps the kernels inside their arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/variant.h>

#include <cstdint>
#include <string>
#include <variant>

#include "csr.h"
#include "number.h"
#include "stored.h"
#include "walk_order.h"

namespace distgnn {

namespace nb = nanobind;

template <typename T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Raises ValueError "<what>, got <got>, expected <expected>" unless the two are equal.
inline void check_equal(const char* what, std::size_t got, std::size_t expected) {
  if (got == expected) return;
  throw nb::value_error((std::string(what) + ", got " + std::to_string(got) + ", expected " +
                         std::to_string(expected))
                            .c_str());
}

// Extents of a matrix, or of whichever a variant holds.
template <typename... Traits>
std::size_t extent(const nb::ndarray<Traits...>& array, int dim) {
  return array.shape(static_cast<std::size_t>(dim));
}
template <typename... Arrays>
std::size_t extent(const std::variant<Arrays...>& rows, int dim) {
  return std::visit([=](const auto& array) { return extent(array, dim); }, rows);
}

template <typename A>
void check_extents(const char* what, const A& got, std::size_t num_rows, std::size_t width) {
  check_equal((std::string(what) + " has the wrong number of rows").c_str(), extent(got, 0),
              num_rows);
  check_equal((std::string(what) + " has the wrong width").c_str(), extent(got, 1), width);
}

template <typename A, typename B>
void check_same_shape(const char* what, const A& got, const B& expected) {
  check_extents(what, got, extent(expected, 0), extent(expected, 1));
}

// Rows and sources are numbered in 32 bits. Raises ValueError if there are too many for that.
inline void check_numbered(const char* what, std::size_t count) {
  constexpr std::size_t kLimit = std::size_t{1} << 31;
  if (count < kLimit) return;
  throw nb::value_error((std::string(what) + " are numbered in 32 bits: got " +
                         std::to_string(count) + ", expected less than " + std::to_string(kLimit) +
                         "; divide the graph into more parts")
                            .c_str());
}

// The graph described by the two arrays. Their ends are checked on every call; the values between
// them are checked once, where a graph is loaded.
inline CsrView csr_view(const Vector<const std::int64_t>& indptr,
                        const Vector<const std::int32_t>& indices) {
  if (indptr.shape(0) == 0) throw nb::value_error("indptr is empty, expected one more than rows");
  const auto num_rows = static_cast<std::int64_t>(indptr.shape(0)) - 1;
  check_numbered("rows of a graph", static_cast<std::size_t>(num_rows));
  check_equal("indptr starts at the wrong edge", static_cast<std::size_t>(indptr.data()[0]), 0);
  check_equal("indices and the end of indptr differ in the number of edges", indices.shape(0),
              static_cast<std::size_t>(indptr.data()[num_rows]));
  return {indptr.data(), indices.data(), num_rows};
}

// The walk order, which must be of this graph; an empty view for none.
inline WalkOrderView walk_view(const WalkOrder* walk, const CsrView& graph) {
  if (walk == nullptr) return {};
  check_equal("the walk order is of another graph: rows", static_cast<std::size_t>(walk->num_rows),
              static_cast<std::size_t>(graph.num_rows));
  check_equal("the walk order is of another graph: edges",
              static_cast<std::size_t>(walk->num_edges),
              static_cast<std::size_t>(graph.indptr[graph.num_rows]));
  return view_of(*walk);
}

// numpy has no bfloat16: its bits come as int16.
template <typename T>
struct InNumpy {
  using type = T;
};
template <>
struct InNumpy<Bf16> {
  using type = std::int16_t;
};
template <typename T>
using Rows = Matrix<const typename InNumpy<T>::type>;
template <typename T>
using OutRows = Matrix<typename InNumpy<T>::type>;

template <typename T>
const T* rows_of(const Rows<T>& array) {
  return reinterpret_cast<const T*>(array.data());
}
template <typename T>
T* out_rows_of(const OutRows<T>& array) {
  return reinterpret_cast<T*>(array.data());
}

// Rows of T, or of bfloat16.
template <typename T>
using SomeRows = std::variant<Matrix<const T>, Rows<Bf16>>;
template <typename T>
using SomeOutRows = std::variant<Matrix<T>, OutRows<Bf16>>;

// Raises TypeError if the rows are of bfloat16 where T is double.
template <typename T, typename Variant>
Stored<T> stored_rows(const char* what, const Variant& rows) {
  if (rows.index() == 0) return {std::get<0>(rows).data(), nullptr};
  if (!std::is_same_v<std::remove_const_t<T>, float>) {
    throw nb::type_error((std::string(what) + " of bfloat16 go with float32 only").c_str());
  }
  using Narrow = typename Stored<T>::Narrow;
  return {nullptr, reinterpret_cast<Narrow*>(std::get<1>(rows).data())};
}

// Raises ValueError if something is read, but the matrix that is read from has no rows, or has more
// than there are numbers for.
inline void check_has_rows(const char* what, std::size_t num_reads, std::size_t num_rows) {
  check_numbered("rows", num_rows);
  if (num_reads > 0 && num_rows == 0) throw nb::value_error(what);
}

// Written so that a NaN is refused too.
inline void check_probability(double probability) {
  if (!(probability >= 0.0 && probability < 1.0)) {
    throw nb::value_error(
        ("probability must be in [0, 1), got " + std::to_string(probability)).c_str());
  }
}

void bind_isa(nb::module_& m);
void bind_checksum(nb::module_& m);
void bind_walk_order(nb::module_& m);
void bind_roof(nb::module_& m);
void bind_spmm(nb::module_& m);
void bind_extreme(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_heads(nb::module_& m);
void bind_rows(nb::module_& m);
void bind_codec(nb::module_& m);
void bind_dropout(nb::module_& m);
void bind_cross_entropy(nb::module_& m);
void bind_gemm(nb::module_& m);
void bind_norm(nb::module_& m);

}  // namespace distgnn
