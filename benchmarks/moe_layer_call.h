#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "benchmarks/moe_shapes.h"
#include "moe/moe_layer.h"
#include "parallel/rank_grid.h"
#include "runtime/config_reader.h"

namespace shoal::bench {

/// A layer of this shape and recipe keys, forward and backward on this rank's share of the tokens,
/// 64 a sample.
class MoeLayerCall {
 public:
  MoeLayerCall(const MoeShape& shape, const std::string& keys, RankGrid& grid) {
    const std::string text = fmt::format("{{{}, experts: {{count: {}, hidden: {}}}}}", keys,
                                         shape.experts, shape.hidden);
    const auto options = config::load_options_text<MoeOptions>(text, "layer").options;
    layer_ = std::make_shared<MoeLayer>(options, shape.width, "layer",
                                        BuildContext{&grid, torch::kFloat32});
    initialise(parameters_of(*layer_, "layer"), 1);
    constexpr int64_t kTokensPerSample = 64;
    const int64_t samples = shape.tokens / kTokensPerSample / grid.world->size();
    step_.training = true;
    step_.sample_b = torch::arange(samples) + samples * grid.world->rank();
    step_.samples_in_step = step_.samples_in_micro = samples * grid.world->size();
    const auto seed = static_cast<uint64_t>(2 * grid.world->rank());
    x_ = normal({samples, kTokensPerSample, shape.width}, seed).set_requires_grad(true);
    upstream_ = normal(x_.sizes(), seed + 1);
  }

  void call() {
    layer_->forward(x_, step_).y_BRD.backward(upstream_);
    for (torch::Tensor parameter : layer_->parameters()) parameter.mutable_grad().reset();
    x_.mutable_grad().reset();
  }

 private:
  std::shared_ptr<MoeLayer> layer_;
  StepContext step_;
  torch::Tensor x_, upstream_;
};

}  // namespace shoal::bench
