#include "models/moco/projection_head.h"

#include <cmath>
#include <optional>
#include <string>

namespace shoal {

ProjectionHeadImpl::ProjectionHeadImpl(const ProjectionShape& shape,
                                       const torch::TensorOptions& options, Communicator* world) {
  TORCH_CHECK(shape.layers >= 1, "projection head: ", shape.layers, " layers");
  for (int64_t i = 0; i < shape.layers; ++i) {
    const bool is_last = i + 1 == shape.layers;
    const int64_t in = i == 0 ? shape.in : shape.hidden, out = is_last ? shape.out : shape.hidden;
    const std::string number = std::to_string(i + 1);
    const Init uniform = Init::uniform(1.0 / std::sqrt(static_cast<double>(in)));
    linears_.push_back(
        register_module("fc" + number, Linear(in, out, options, uniform, std::nullopt)));
    norms_.push_back(register_module("norm" + number,
                                     SyncBatchNorm(out, /*is_affine=*/!is_last, options, world)));
  }
}

torch::Tensor ProjectionHeadImpl::forward(const torch::Tensor& x_bD, bool is_training) {
  torch::Tensor y = x_bD;
  for (size_t i = 0; i < linears_.size(); ++i) {
    if (i > 0) y = y.relu();
    y = norms_[i]->forward(linears_[i]->forward(y), is_training);
  }
  return y;
}

}  // namespace shoal
