#include <nanobind/stl/optional.h>

#include <optional>

#include "bindings.h"
#include "codec.h"

namespace distgnn {
namespace {

using namespace nb::literals;
using std::int32_t;
using std::int64_t;
using std::uint64_t;
using std::uint8_t;

using Numbers = std::optional<Vector<const int32_t>>;
using Offsets = std::optional<Vector<const int64_t>>;
using RowBits = std::optional<Vector<const uint8_t>>;

// The code of `count` rows in a message of so many bytes.
RowCode row_code(std::size_t width, std::size_t exact_columns, int bits, const RowBits& bits_of_row,
                 const Offsets& offsets, std::size_t count, std::size_t num_bytes) {
  if (bits != 16 && bits != 8 && bits != 4 && bits != 2 && bits != 1) {
    throw nb::value_error(
        ("bits must be 16, 8, 4, 2 or 1, got " + std::to_string(bits)).c_str());
  }
  if (exact_columns > width) {
    throw nb::value_error(("exact_columns must be at most the width of the rows, " +
                           std::to_string(width) + ", got " + std::to_string(exact_columns))
                              .c_str());
  }
  const RowCode code{static_cast<int64_t>(width), static_cast<int64_t>(exact_columns), bits,
                     bits_of_row ? bits_of_row->data() : nullptr,
                     offsets ? offsets->data() : nullptr};
  if (bits_of_row) check_equal("bits has the wrong length", bits_of_row->shape(0), count);
  if (bits_of_row && !offsets) {
    throw nb::value_error("rows with bits of their own need offsets, got none; see row_offsets");
  }
  std::size_t needed = count * static_cast<std::size_t>(coded_row_bytes(code.width,
                                                                        code.exact_columns, bits));
  if (offsets) {
    check_equal("offsets has the wrong length", offsets->shape(0), count + 1);
    needed = static_cast<std::size_t>(offsets->data()[count]);
  }
  check_equal("the message has the wrong number of bytes", num_bytes, needed);
  return code;
}

void check_count(const Numbers& numbers, const char* what, std::size_t count, std::size_t num_rows) {
  check_has_rows("there are no rows to code or to decode into", count, num_rows);
  if (numbers) {
    check_equal((std::string(what) + " has the wrong length").c_str(), numbers->shape(0), count);
  } else if (count > num_rows) {
    throw nb::value_error(("count must be at most the number of rows, " + std::to_string(num_rows) +
                           ", got " + std::to_string(count))
                              .c_str());
  }
}

template <typename X>
void bind_encode(nb::module_& m) {
  m.def(
      "encode_rows",
      [](Rows<X> x, Numbers picked, std::size_t count, int bits, RowBits bits_of_row,
         Offsets offsets, std::size_t exact_columns, std::optional<uint64_t> seed,
         Vector<uint8_t> out) {
        check_count(picked, "picked", count, x.shape(0));
        const RowCode code = row_code(x.shape(1), exact_columns, bits, bits_of_row, offsets, count,
                                      out.shape(0));
        const nb::gil_scoped_release unlocked;
        return encode_rows(rows_of<X>(x), picked ? picked->data() : nullptr,
                           static_cast<int64_t>(count), code, seed ? &*seed : nullptr, out.data());
      },
      "x"_a.noconvert(), "picked"_a.noconvert().none(), "count"_a, "bits"_a,
      "bits_of_row"_a.noconvert().none(), "offsets"_a.noconvert().none(), "exact_columns"_a,
      "seed"_a.none(), "out"_a.noconvert());
}

template <typename Y>
void bind_decode(nb::module_& m) {
  m.def(
      "decode_rows",
      [](Vector<const uint8_t> message, std::size_t count, int bits, RowBits bits_of_row,
         Offsets offsets, std::size_t exact_columns, Numbers places, double weight, bool add,
         OutRows<Y> out) {
        check_count(places, "places", count, out.shape(0));
        const RowCode code = row_code(out.shape(1), exact_columns, bits, bits_of_row, offsets,
                                      count, message.shape(0));
        const nb::gil_scoped_release unlocked;
        decode_rows(message.data(), static_cast<int64_t>(count), code,
                    places ? places->data() : nullptr, static_cast<float>(weight), add,
                    out_rows_of<Y>(out));
      },
      "message"_a.noconvert(), "count"_a, "bits"_a, "bits_of_row"_a.noconvert().none(),
      "offsets"_a.noconvert().none(), "exact_columns"_a, "places"_a.noconvert().none(), "weight"_a,
      "add"_a, "out"_a.noconvert());
}

}  // namespace

void bind_codec(nb::module_& m) {
  bind_encode<float>(m);
  bind_encode<Bf16>(m);
  bind_decode<float>(m);
  bind_decode<Bf16>(m);
}

}  // namespace distgnn
