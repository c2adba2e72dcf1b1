#pragma once

#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

#include "parallel/comm/communicator.h"
#include "runtime/module/module.h"

// b rows on this rank  D features
namespace shoal {

/// Batch normalisation with the statistics of all ranks' rows (SyncBN):
///     y = (x - mean) / sqrt(variance + 1e-5) · weight + bias
/// Training uses the mean and biased variance of the global batch and moves the running statistics
/// a tenth of the way towards them (with unbiased variance); evaluation uses the running
/// statistics. A batch with non-finite statistics does not change them.
///
/// Parameters, if affine: weight [D] = 1, bias [D] = 0; buffers: running_mean, running_var.
/// Source: Ioffe and Szegedy 2015; over ranks as torch.nn.SyncBatchNorm.
class SyncBatchNormImpl : public ModuleBase {
 public:
  /// `features`: D. `world`: all ranks, on the model's device; outlives the module; null on meta.
  SyncBatchNormImpl(int64_t features, bool is_affine, const torch::TensorOptions& options,
                    Communicator* world);

  /// [b, D] -> [b, D], at least float32; b may be 0. In training, both passes are collective.
  torch::Tensor forward(const torch::Tensor& x_bD, bool is_training);

  torch::Tensor weight, bias, running_mean, running_var;

 private:
  void move_running(const torch::Tensor& mean_D, const torch::Tensor& variance_D,
                    const torch::Tensor& count);

  Communicator* world_;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace shoal
