#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>

#include "bindings.h"
#include "cross_entropy.h"

namespace distgnn {
namespace {

using namespace nb::literals;
using std::int64_t;

void check_labels(const Vector<const int64_t>& label, int64_t num_classes) {
  const int64_t* end = label.data() + label.shape(0);
  const int64_t* wrong = std::find_if(
      label.data(), end, [=](int64_t value) { return value < 0 || value >= num_classes; });
  if (wrong == end) return;
  throw nb::value_error(("label is no class: got " + std::to_string(*wrong) +
                         ", expected 0 or more and less than " + std::to_string(num_classes))
                            .c_str());
}

template <typename T>
void bind_type(nb::module_& m) {
  m.def(
      "cross_entropy",
      [](Matrix<const T> scores, Vector<const int64_t> label, Vector<T> loss,
         std::optional<Matrix<T>> gradient) {
        const auto num_classes = static_cast<int64_t>(scores.shape(1));
        check_equal("label has the wrong length", label.shape(0), scores.shape(0));
        check_equal("loss has the wrong length", loss.shape(0), scores.shape(0));
        if (gradient) check_same_shape("gradient", *gradient, scores);
        const nb::gil_scoped_release unlocked;
        check_labels(label, num_classes);
        cross_entropy(scores.data(), label.data(), static_cast<int64_t>(scores.shape(0)),
                      num_classes, loss.data(), gradient ? gradient->data() : nullptr);
      },
      "scores"_a.noconvert(), "label"_a.noconvert(), "loss"_a.noconvert(),
      "gradient"_a.noconvert().none());
}

}  // namespace

void bind_cross_entropy(nb::module_& m) {
  bind_type<float>(m);
  bind_type<double>(m);
}

}  // namespace distgnn
