#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string_view>

#include "runtime/random/step_context.h"

// b samples on this rank  R rows of a sample  C elements of a row
namespace shoal {

/// Dropout: while training, an element is zeroed with probability `rate`, and divided by 1 - rate
/// otherwise. Source: Srivastava et al. 2014.
///
/// The choice depends on the seed, the path, the step, the sample's position in the stream (and its
/// view) and the element's index in its sample, not on ranks, batches or precision. One byte per
/// element is saved for the backward pass.
class Dropout {
 public:
  /// `path` is the path in the model, `blocks.3.mlp.dropout`. 0 <= rate < 1.
  Dropout(double rate, std::string_view path);
  bool is_active(const StepContext& step) const { return step.training && rate_ > 0.0; }
  double rate() const { return rate_; }
  /// [b, ..., C] -> the same, b = samples of the step; returns x itself if not active.
  torch::Tensor forward(const torch::Tensor& x, const StepContext& step) const;
  /// bool [b, ..., C]: true for elements of a tensor of these sizes that are zeroed.
  torch::Tensor is_dropped(at::IntArrayRef sizes, const StepContext& step) const;

 private:
  double rate_;
  uint64_t layer_;
};

}  // namespace shoal
