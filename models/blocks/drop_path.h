#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string_view>

#include "runtime/random/step_context.h"

namespace shoal {

/// Stochastic depth: while training, a sample skips a residual branch with probability `rate`;
/// otherwise the branch is divided by 1 - rate. Source: Huang et al. 2016; the division as in timm.
///
/// The choice depends on the seed, the branch's path, the step and the sample's position in the
/// stream (and its view), not on ranks, batches or precision.
class DropPath {
 public:
  /// `path` is the branch's path in the model, `blocks.3.mlp`. 0 <= rate < 1.
  DropPath(double rate, std::string_view path);
  /// [b, ...] -> [b, ...], b = samples of the step; returns x itself if nothing is dropped.
  torch::Tensor forward(const torch::Tensor& x, const StepContext& step) const;

 private:
  double rate_;
  uint64_t layer_;
};

/// Drop rate of a block; rises linearly from 0 for the first block to `last` for the last one.
double drop_path_rate(double last, int64_t block, int64_t depth);

}  // namespace shoal
