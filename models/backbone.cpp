#include "models/backbone.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"

namespace shoal {
namespace {

[[noreturn]] void refuse(const DataShape& data, const std::string& key, std::string_view who,
                         std::string_view needed) {
  throw ConfigError(fmt::format("{}: {} needs {}, data.source {} gives {}", key, who, needed,
                                data.source, data.text()));
}

}  // namespace

torch::Tensor ModelOutput::take(BlockOutput block) {
  auxiliary_loss = add_loss(auxiliary_loss, block.auxiliary_loss);
  for (MoeStats& stats : block.moe) moe.push_back(std::move(stats));
  return block.y;
}

void ModelOutput::set_tokens(const torch::Tensor& x_bSD, Features features) {
  if (features == Features::kTokens) {
    token_bSD = x_bSD;
  } else {
    pooled_bD = mean_over(x_bSD, {1});
  }
}

ModelInput input_of(const Batch& batch, int64_t view) {
  return {batch.image_bVCHW.defined() ? batch.image_bCHW(view) : torch::Tensor(), batch.token_bS,
          batch.value_bN};
}

StepContext context_of(const Batch& batch, int64_t view) {
  StepContext step = batch.context;
  step.view_b = torch::full_like(step.sample_b, view);
  return step;
}

BackboneFactory backbone_factory(const Choice<Backbone>& choice, const BuildContext& build,
                                 const DataShape& data) {
  return [choice, build, data](const std::string& name, Features features) {
    BuildContext own = build;
    if (name != "backbone") own.prefix += name + ".";
    return Registry<Backbone>::create(choice, {own, data, features});
  };
}

ImageShape require_images(const DataShape& data, const std::string& key, std::string_view who) {
  if (!data.image) refuse(data, key, who, "images");
  return *data.image;
}

void require_tokens(const DataShape& data, const std::string& key, std::string_view who) {
  if (data.sequence == 0 || data.vocabulary == 0) refuse(data, key, who, "tokens");
}

std::vector<std::shared_ptr<MoeStage>> moe_stages_of(const torch::nn::Module& root) {
  std::vector<std::shared_ptr<MoeStage>> stages;
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (auto stage = std::dynamic_pointer_cast<MoeStage>(module)) stages.push_back(stage);
  }
  return stages;
}

torch::Tensor at_least_float32(const torch::Tensor& x) {
  return x.scalar_type() == torch::kBFloat16 ? x.to(torch::kFloat32) : x;
}

torch::Tensor mean_over(const torch::Tensor& x, at::IntArrayRef dims) {
  return x.mean(dims, /*keepdim=*/false,
                x.scalar_type() == torch::kBFloat16 ? torch::kFloat32 : x.scalar_type());
}

}  // namespace shoal
