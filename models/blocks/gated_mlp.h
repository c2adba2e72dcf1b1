#pragma once

#include <torch/types.h>

#include "models/blocks/mlp.h"
#include "runtime/module/linear.h"
#include "runtime/module/module.h"

namespace shoal {

/// SwiGLU MLP: fc2(silu(gate(x)) * fc1(x)), width -> hidden -> width; gate is initialised like fc1.
/// Hugging Face's Llama calls the layers gate_proj (gate), up_proj (fc1) and down_proj (fc2).
/// Source: Shazeer 2020 (GLU variants), equation 6.
class GatedMlpImpl : public ModuleBase {
 public:
  GatedMlpImpl(const MlpShape& shape, const MlpInits& inits, const torch::TensorOptions& options);
  /// [..., width] -> [..., width].
  torch::Tensor forward(const torch::Tensor& x) const;

  Linear gate{nullptr}, fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(GatedMlp);

}  // namespace shoal
