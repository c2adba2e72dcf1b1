#include <ATen/ops/arange.h>

#include "runtime/base/exact_share.h"
#include "sparse/patterns/pattern.h"

// m rows  n columns  b half width
namespace shoal {
namespace {

/// A fixed band around the diagonal: row r has the columns c with |c - floor(r n / m)| <= b.
class Banded : public Pattern {
 public:
  using Options = NoOptions;
  /// Chooses the narrowest band of odd width 2 b + 1 >= density n.
  Banded(const Options& /*options*/, const Context& context)
      : Pattern(context), half_width_(ceil_share(columns(), decimal_of(context.density), 1) / 2) {}
  bool limits_span() const override { return true; }
  bool can_change() const override { return false; }
  int64_t num_on() const override { return mask(torch::kCPU).sum().item<int64_t>(); }
  bool holds(const torch::Tensor& is_on_C) const override {
    return is_on_C.equal(choose(is_on_C.to(torch::kFloat32)));
  }
  torch::Tensor choose(const torch::Tensor& score_C) const override {
    return mask(score_C.device()).view({-1});
  }

 private:
  torch::Tensor mask(const torch::Device& device) const {
    const auto options = torch::TensorOptions().dtype(torch::kInt64).device(device);
    const torch::Tensor middle_m1 =
        (at::arange(rows(), options) * columns()).div(rows(), "floor").unsqueeze(1);
    return (at::arange(columns(), options) - middle_m1).abs() <= half_width_;
  }

  int64_t half_width_;
};

const Registration<Pattern, Banded> registered_banded{"banded", "a band around the diagonal"};

}  // namespace
}  // namespace shoal
