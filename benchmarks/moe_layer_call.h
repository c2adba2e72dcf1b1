#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "benchmarks/moe_shapes.h"
#include "moe/moe_layer.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/options/config_reader.h"

namespace shoal::bench {

/// A layer of this shape and recipe keys, forward and backward on this rank's share of the tokens.
class MoeLayerCall {
 public:
  /// `expert_keys` are further ones of the section `experts`; `tensors`: where and of what type the
  /// grid's rank computes.
  MoeLayerCall(const MoeShape& shape, const std::string& keys, RankGrid& grid,
               const std::string& expert_keys = "kind: plain",
               const torch::TensorOptions& tensors = torch::kFloat32) {
    const std::string text = fmt::format("{{{}, experts: {{count: {}, hidden: {}, {}}}}}", keys,
                                         shape.experts, shape.hidden, expert_keys);
    const auto options = config::load_options_text<MoeOptions>(text, "layer").options;
    layer_ =
        std::make_shared<MoeLayer>(options, shape.width, "layer", BuildContext{&grid, tensors});
    initialise(parameters_of(*layer_, "layer"), 1);
    const int64_t samples = shape.tokens / shape.tokens_per_sample / grid.world->size();
    step_.training = true;
    step_.sample_b = (torch::arange(samples) + samples * grid.world->rank()).to(tensors.device());
    step_.samples_in_step = step_.samples_in_micro = samples * grid.world->size();
    const auto seed = static_cast<uint64_t>(2 * grid.world->rank());
    x_ = normal({samples, shape.tokens_per_sample, shape.width}, seed, tensors)
             .set_requires_grad(true);
    upstream_ = normal(x_.sizes(), seed + 1, tensors);
  }

  void call() {
    step();
    clear();
  }

  /// The output; leaves gradients behind.
  torch::Tensor step() {
    const torch::Tensor y_BRD = layer_->forward(x_, step_).y_BRD;
    y_BRD.backward(upstream_);
    return y_BRD.detach();
  }
  void clear() {
    for (torch::Tensor parameter : layer_->parameters()) parameter.mutable_grad().reset();
    x_.mutable_grad().reset();
  }

  const torch::Tensor& x() const { return x_; }
  const torch::Tensor& upstream() const { return upstream_; }
  std::vector<Parameter> parameters() const { return parameters_of(*layer_); }

 private:
  std::shared_ptr<MoeLayer> layer_;
  StepContext step_;
  torch::Tensor x_, upstream_;
};

}  // namespace shoal::bench
