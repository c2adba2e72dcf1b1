#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string_view>

#include "runtime/random/step_context.h"

// b samples on this rank  R rows of a sample  C numbers of a row
namespace shoal {

/// Dropout: while training, a number is zeroed with probability `rate`, and divided by 1 - rate
/// otherwise. Source: Srivastava et al. 2014.
///
/// Which numbers are zeroed depends on the seed, the path, the step, the sample's position in the
/// stream (and its view) and the number's place in its sample, not on ranks, batches or precision.
/// The backward pass keeps one byte a number.
class Dropout {
 public:
  /// `path` is the place in the model, `blocks.3.mlp.dropout`. 0 <= rate < 1.
  Dropout(double rate, std::string_view path);
  bool is_active(const StepContext& step) const { return step.training && rate_ > 0.0; }
  double rate() const { return rate_; }
  /// [b, ..., C] -> the same, b = samples of the step; x itself where it is not active.
  torch::Tensor forward(const torch::Tensor& x, const StepContext& step) const;
  /// bool [b, ..., C]: which numbers of such a tensor it zeroes.
  torch::Tensor is_dropped(at::IntArrayRef sizes, const StepContext& step) const;

 private:
  double rate_;
  uint64_t layer_;
};

}  // namespace shoal
