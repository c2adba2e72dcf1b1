#include "sparse/patterns/diagonal.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "sparse/patterns/pattern.h"

namespace shoal {

torch::Tensor Diagonals::places(const torch::Device& device) const {
  const auto options = torch::TensorOptions().dtype(torch::kInt64).device(device);
  const torch::Tensor offset_P1 = at::arange(count(), options).unsqueeze(1);
  const torch::Tensor along_D = at::arange(length(), options);
  if (rows >= columns) return (along_D + offset_P1).remainder(rows) * columns + along_D;
  return along_D * columns + (along_D + offset_P1).remainder(columns);
}

namespace {

/// Diagonal sparsity: a cell is a whole diagonal that wraps around.
class Diagonal : public Pattern {
 public:
  using Options = NoOptions;
  Diagonal(const Options& /*options*/, const Context& context)
      : Pattern(context), diagonals_{rows(), columns()} {
    const int64_t weights = share_of(rows() * columns());
    num_on_ = (weights + diagonals_.length() - 1) / diagonals_.length();
  }
  bool limits_span() const override { return true; }
  MaskStorage storage() const override { return MaskStorage::kDiagonals; }
  int64_t num_cells() const override { return diagonals_.count(); }
  int64_t num_on() const override { return num_on_; }
  int64_t num_weights() const override { return num_on_ * diagonals_.length(); }
  torch::Tensor pool(const torch::Tensor& x_mn) const override {
    return at::linalg_vector_norm(by_diagonal(x_mn), 2, at::IntArrayRef{1});
  }
  torch::Tensor sum(const torch::Tensor& x_mn) const override { return by_diagonal(x_mn).sum(1); }
  torch::Tensor expand(const torch::Tensor& value_C) const override {
    const torch::Tensor place_PD = diagonals_.places(value_C.device());
    return torch::zeros({rows() * columns()}, value_C.options())
        .scatter_(0, place_PD.view({-1}), value_C.unsqueeze(1).expand_as(place_PD).reshape({-1}))
        .view({rows(), columns()});
  }

 private:
  torch::Tensor by_diagonal(const torch::Tensor& x_mn) const {
    return x_mn.reshape({-1}).take(diagonals_.places(x_mn.device()));
  }

  Diagonals diagonals_;
  int64_t num_on_;
};

const Registration<Pattern, Diagonal> registered_diagonal{"diagonal", "whole cyclic diagonals"};

}  // namespace
}  // namespace shoal
