#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "parallel/gradients/gradient_norm.h"

namespace shoal {

/// L2 norms of one layer in an optimizer step: of all its parameters on all ranks as one vector,
/// each counted once. The parameters NAME.weight and NAME.bias are the layer NAME; one with another
/// ending is a layer of its own. All experts of a stack are one layer, `experts.*.fc1`.
struct LayerNorms {
  std::string layer;
  double weight = 0.0;    ///< of the weights after the step
  double gradient = 0.0;  ///< of the gradient that `stats` measured, summed over replicas
  double update = 0.0;    ///< of the difference between the weights after and before the step
};

/// Copies the weights of this rank's share, for layer_norms.
std::vector<torch::Tensor> copy_weights(const GradientShare& share);

/// Returns the norms of all layers that are trained, in the order of `parameters`, the list of all
/// parameters; equal on all ranks. `stats`: of the share's gradients; `before`: copy_weights from
/// before the step, which is overwritten. Collective: one all-reduce. Waits for the GPU.
std::vector<LayerNorms> layer_norms(const std::vector<Parameter>& parameters,
                                    const GradientShare& share, const GradientStats& stats,
                                    const std::vector<torch::Tensor>& before, Communicator& world);

}  // namespace shoal
