#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string_view>

#include "runtime/random/step_context.h"

// b samples on this rank  R rows of a sample  C elements of a row
namespace shoal {

/// Dropout: in training, zeroes an element with probability `rate`, and divides it by 1 - rate
/// otherwise. Source: Srivastava et al. 2014.
///
/// Draws are keyed by the seed, the path, the step, the sample's position in the data stream, its
/// view (augmented copy), and the element's index in its sample, so they are independent of ranks,
/// batches and precision. One byte per element is saved for the backward pass.
class Dropout {
 public:
  /// `path`: the layer's place in the model, `blocks.3.mlp.dropout`. 0 <= rate < 1.
  Dropout(double rate, std::string_view path);
  bool is_active(const StepContext& step) const { return step.training && rate_ > 0.0; }
  double rate() const { return rate_; }
  /// [b, ..., C] -> [b, ..., C], b samples of the step. Returns x itself unless is_active.
  torch::Tensor forward(const torch::Tensor& x, const StepContext& step) const;
  /// The mask of zeroed elements for a tensor of these sizes: bool [b, ..., C].
  torch::Tensor is_dropped(at::IntArrayRef sizes, const StepContext& step) const;

 private:
  double rate_;
  uint64_t layer_;
};

/// Stochastic depth: in training, drops a residual branch of a sample with probability `rate`, and
/// divides it by 1 - rate otherwise. Source: Huang et al. 2016; the division as in timm.
///
/// Draws are keyed by the seed, the branch's path, the step, the sample's position in the data
/// stream and its view (augmented copy), so they are independent of ranks, batches and precision.
class DropPath {
 public:
  /// `path`: the branch's place in the model, `blocks.3.mlp`. 0 <= rate < 1.
  DropPath(double rate, std::string_view path);
  /// [b, ...] -> [b, ...], b samples of the step. Returns x itself if nothing can be dropped.
  torch::Tensor forward(const torch::Tensor& x, const StepContext& step) const;

 private:
  double rate_;
  uint64_t layer_;
};

/// Rate of block `block` (from 0) of `depth`: grows linearly from 0 to `last` at the last block.
double drop_path_rate(double last, int64_t block, int64_t depth);

}  // namespace shoal
