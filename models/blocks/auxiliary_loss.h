#pragma once

#include <torch/types.h>

namespace shoal {

/// The sum of two losses either of which may be undefined, which counts as zero.
inline torch::Tensor add_loss(const torch::Tensor& total, const torch::Tensor& loss) {
  if (!loss.defined()) return total;
  return total.defined() ? total + loss : loss;
}

}  // namespace shoal
