#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string_view>

#include "runtime/random/step_context.h"

namespace shoal {

/// Stochastic depth: while training, a residual branch is left out of a sample with probability
/// `rate`, and divided by 1 - rate otherwise. Source: Huang et al. 2016; the division as in timm.
///
/// Which samples lose it depends on the seed, the branch's path, the step and the sample's position
/// in the stream (and its view), not on ranks, batches or precision.
class DropPath {
 public:
  /// `path` is the branch's place in the model, `blocks.3.mlp`. 0 <= rate < 1.
  DropPath(double rate, std::string_view path);
  /// [b, ...] -> [b, ...], b = samples of the step; x itself where nothing is left out.
  torch::Tensor forward(const torch::Tensor& x, const StepContext& step) const;

 private:
  double rate_;
  uint64_t layer_;
};

/// Rates rise evenly over the depth, from 0 for the first block to `last` for the last one.
double drop_path_rate(double last, int64_t block, int64_t depth);

}  // namespace shoal
