// What the binding files of the partitioner share: views of NumPy's arrays, and arrays for NumPy.
//
// Array arguments are bound with noconvert: a converted copy of an output would swallow the result.
// The functions of partition/ that call these know which lengths belong together.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <tuple>
#include <utility>

#include "partition_balance.h"

namespace distgnn {

namespace nb = nanobind;

template <typename T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using InVector = Vector<const T>;
// A named tuple of arrays and numbers.
using Fields = nb::typed<nb::tuple, nb::object, nb::ellipsis>;
template <typename T>
using Numpy = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <typename T>
Array<T> view(const Vector<T>& array) {
  return {array.data(), static_cast<std::int64_t>(array.shape(0))};
}
template <typename T>
Rows2<T> view(const Matrix<T>& array) {
  return {array.data(), static_cast<std::int64_t>(array.shape(0)),
          static_cast<std::int64_t>(array.shape(1))};
}
inline Sets sets(const Matrix<std::uint64_t>& array) {
  return {array.data(), static_cast<std::int64_t>(array.shape(1))};
}

// An array that NumPy owns from now on.
template <typename T>
Numpy<T> numpy(Made<T> made) {
  const auto size = static_cast<std::size_t>(made.size());
  T* const data = made.release();
  const nb::capsule owner(data, [](void* kept) noexcept { delete[] static_cast<T*>(kept); });
  return Numpy<T>(data, {size}, owner);
}

// A field of a tuple of arrays, which the tuple keeps alive.
template <typename T>
Array<T> field(const nb::tuple& holder, std::size_t at) {
  return view(nb::cast<Vector<T>>(holder[at], false));
}
template <typename T>
Rows2<T> matrix_field(const nb::tuple& holder, std::size_t at) {
  return view(nb::cast<Matrix<T>>(holder[at], false));
}
inline Sets sets_field(const nb::tuple& holder, std::size_t at) {
  return sets(nb::cast<Matrix<std::uint64_t>>(holder[at], false));
}

// Runs a function of arrays while other Python threads go on.
template <typename Function>
auto unlocked(Function&& function) {
  const nb::gil_scoped_release released;
  return function();
}

inline auto named(const char* array) { return nb::arg(array).noconvert(); }
inline nb::arg named(nb::arg number) { return number; }

// Defines a function whose arrays are named by text and whose numbers by nb::arg.
template <typename Function, typename... Names>
void define(nb::module_& m, const char* name, Function&& function, Names... names) {
  m.def(name, std::forward<Function>(function), named(names)...);
}

// The fields in the order of Adjacency in partition/arcs.py.
inline Links links_of(const nb::tuple& adjacency) {
  Links links{field<const std::int64_t>(adjacency, 0), field<const std::int32_t>(adjacency, 1), {}};
  if (nb::isinstance<InVector<std::int32_t>>(adjacency[2])) {
    links.weight.narrow = field<const std::int32_t>(adjacency, 2);
  } else {
    links.weight.wide = field<const std::int64_t>(adjacency, 2);
  }
  return links;
}

void bind_partition_arcs(nb::module_& m);
void bind_partition_cover(nb::module_& m);
void bind_partition_growth(nb::module_& m);
void bind_partition_levels(nb::module_& m);
void bind_partition_blocks(nb::module_& m);
void bind_partition_order(nb::module_& m);
void bind_partition_refine(nb::module_& m);

}  // namespace distgnn
