#pragma once

#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "models/moco/sync_batch_norm.h"
#include "runtime/module/linear.h"
#include "runtime/module/module.h"

// b samples on this rank  D features
namespace shoal {

/// Widths and depth of a projection head.
struct ProjectionShape {
  int64_t in = 0, hidden = 0, out = 0;
  int64_t layers = 3;  ///< number of linear layers, at least 1
};

/// MoCo v3's projector or predictor, an MLP on a backbone's features: linear layers without bias,
/// each followed by a SyncBatchNorm (batch norm over all ranks), with a ReLU in between; the last
/// norm has no weight and bias. Weights are drawn from U(±1/sqrt(in)), as in PyTorch.
///
/// Parameters: fc1.weight, norm1.weight, norm1.bias, fc2.weight, …
/// Source: Chen, Xie and He 2021 (MoCo v3), builder.py of its published code.
class ProjectionHeadImpl : public ModuleBase {
 public:
  /// `world`: communicator of all ranks on the model's device; outlives the module. Null on meta.
  ProjectionHeadImpl(const ProjectionShape& shape, const torch::TensorOptions& options,
                     Communicator* world);
  /// [b, in] -> [b, out] in float32 (float64 for float64); b may be 0. With `is_training` forward
  /// and backward are collective; without it the norms use their running statistics.
  torch::Tensor forward(const torch::Tensor& x_bD, bool is_training);

 private:
  std::vector<Linear> linears_;
  std::vector<SyncBatchNorm> norms_;
};
TORCH_MODULE(ProjectionHead);

}  // namespace shoal
