#include "bindings.h"
#include "checksum.h"

void distgnn::bind_checksum(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "crc32c",
      [](Vector<const std::uint8_t> data) {
        const nb::gil_scoped_release unlocked;
        return crc32c(data.data(), static_cast<std::int64_t>(data.shape(0)));
      },
      "data"_a.noconvert());
}
