// The part of all_bits.cpp that has norms, of columns and of rows, and their gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "norm.h"

// Calls print(name, width, values) for every output; stored(rows) is a view of rows and next_random()
// draws a number. Results are stored as X.
template <typename T, typename X, typename Print, typename View, typename Random>
void run_norms(std::int64_t width, const Print& print, const View& stored,
               const Random& next_random) {
  constexpr std::int64_t kNormRows = 1300;
  const auto random = [&](std::int64_t size) {
    std::vector<T> values(size);
    for (auto& value : values) value = static_cast<T>(next_random() % 1000) / 7 - 60;
    return values;
  };
  const std::vector<T> x = random(kNormRows * width), wide = random(kNormRows * width);
  const std::vector<T> mean = random(width), factors = random(3 * width);
  std::vector<X> grad(x.size()), out(x.size());
  for (std::size_t i = 0; i < wide.size(); ++i) distgnn::store(wide[i], &grad[i]);
  std::vector<std::int64_t> key(kNormRows);
  for (auto& k : key) k = static_cast<std::int64_t>(next_random());
  const distgnn::NormInput<T> input{x.data(), kNormRows, width};
  const distgnn::Finish<T> finish{nullptr, factors.data(), true, key.data(),
                                  distgnn::make_mask_rule<T>(5, 0.3)};

  const std::int64_t size = distgnn::column_sums_workspace(kNormRows, width);
  std::vector<double> workspace(size), moments(2 * width);
  distgnn::column_moments(input, workspace.data(), moments.data(), moments.data() + width);
  print("moments", width, moments);
  distgnn::normalise_rows(input, mean.data(), T(1e-5), finish, stored(out.data()));
  print("by_row", width, out);
  distgnn::normalise_columns(input, mean.data(), factors.data(), finish, stored(out.data()));
  print("by_column", width, out);
  const distgnn::NormGradient<T> gradient{stored(grad.data()).read(), stored(out.data()).read(),
                                          T(1.5)};
  distgnn::column_gradient_sums(input, gradient, mean.data(), factors.data(), workspace.data(),
                                moments.data());
  print("column_sums", width, moments);
  std::vector<T> back(x.size()), scratch(size), sums(2 * width);
  distgnn::columns_backward(input, gradient, mean.data(), factors.data(), kNormRows - 9,
                            back.data());
  print("columns_backward", width, back);
  distgnn::rows_backward(input, gradient, mean.data(), T(1e-5), scratch.data(), back.data(),
                         sums.data());
  print("rows_backward", width, back);
  print("row_sums", width, sums);
}
