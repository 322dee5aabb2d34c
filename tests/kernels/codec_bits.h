// The part of all_bits.cpp that has coded rows.
#pragma once

#include <cstdint>
#include <vector>

#include "codec.h"
#include "number.h"

// Calls print(name, width, values) for every output; next_random() draws a number. Rows are stored
// as X.
template <typename X, typename Print, typename Random>
void run_codecs(std::int64_t width, const Print& print, const Random& next_random) {
  constexpr std::int64_t kCodedRows = 300;
  std::vector<X> x(kCodedRows * width);
  for (auto& value : x) distgnn::store(static_cast<float>(next_random() % 1000) / 7 - 60, &value);
  std::vector<std::int32_t> picked(kCodedRows), places(kCodedRows);
  for (auto& row : picked) row = static_cast<std::int32_t>(next_random() % kCodedRows);
  for (std::int64_t k = 0; k < kCodedRows; ++k) {
    places[k] = static_cast<std::int32_t>(kCodedRows - 1 - k);
  }
  for (const int bits : {16, 8, 4, 2, 1}) {
    const distgnn::RowCode code{width, width / 7, bits, nullptr, nullptr};
    std::vector<std::uint8_t> message(kCodedRows *
                                      distgnn::coded_row_bytes(width, width / 7, bits));
    distgnn::encode_rows(x.data(), picked.data(), kCodedRows, code, nullptr, message.data());
    print("coded", width, message);
    const std::uint64_t seed = next_random();
    distgnn::encode_rows(x.data(), picked.data(), kCodedRows, code, &seed, message.data());
    print("coded_at_random", width, message);
    std::vector<X> out(x);
    for (const float weight : {0.3f, 1.0f}) {
      distgnn::decode_rows(message.data(), kCodedRows, code, places.data(), weight, false,
                           out.data());
      print("decoded", width, out);
    }
    std::vector<float> total(x.size(), 1.0f);
    distgnn::decode_rows(message.data(), kCodedRows, code, picked.data(), 1.0f, true,
                         total.data());
    print("decoded_and_added", width, total);
  }
}
