#include "models/backbone.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"
#include "runtime/device/real_types.h"

namespace shoal {
namespace {

[[noreturn]] void refuse(const DataShape& data, const std::string& key, std::string_view who,
                         std::string_view needed) {
  throw ConfigError(fmt::format("{}: {} needs {}, data.source {} gives {}", key, who, needed,
                                data.source, data.text()));
}

torch::Tensor last_token(const torch::Tensor& x_bSD, const torch::Tensor& length_b) {
  if (!length_b.defined()) return x_bSD.select(1, x_bSD.size(1) - 1);
  const torch::Tensor last_b1D =
      (length_b - 1).view({-1, 1, 1}).expand({x_bSD.size(0), 1, x_bSD.size(2)});
  return x_bSD.gather(1, last_b1D).squeeze(1);
}

/// The mean over the first length_b tokens.
torch::Tensor mean_of_first(const torch::Tensor& x_bSD, const torch::Tensor& length_b) {
  const torch::Tensor place_S = torch::arange(x_bSD.size(1), length_b.options());
  const torch::Tensor is_padding_bS = place_S >= length_b.unsqueeze(1);
  // masked_fill instead of a product: NaN in padding must not reach the sum.
  return at_least_float32(x_bSD).masked_fill(is_padding_bS.unsqueeze(2), 0).sum(1) /
         length_b.unsqueeze(1);
}

}  // namespace

torch::Tensor ModelOutput::take(BlockOutput block) {
  auxiliary_loss = add_loss(auxiliary_loss, block.auxiliary_loss);
  for (MoeStats& stats : block.moe) moe.push_back(std::move(stats));
  if (block.is_open_bS.defined()) is_open_bS.push_back(std::move(block.is_open_bS));
  return block.y;
}

void ModelOutput::set_tokens(const torch::Tensor& x_bSD, Features features,
                             const torch::Tensor& host_length_b) {
  const torch::Tensor length_b =
      host_length_b.defined() ? host_length_b.to(x_bSD.device(), true) : host_length_b;
  if (features == Features::kTokens) {
    token_bSD = x_bSD;
  } else if (features == Features::kLast) {
    pooled_bD = at_least_float32(last_token(x_bSD, length_b));
  } else {
    pooled_bD = length_b.defined() ? mean_of_first(x_bSD, length_b) : mean_over(x_bSD, {1});
  }
}

ModelInput input_of(const Batch& batch, int64_t view) {
  return {batch.image_bVCHW.defined() ? batch.image_bCHW(view) : torch::Tensor(), batch.token_bS,
          batch.length_b, batch.value_bN};
}

StepContext context_of(const Batch& batch, int64_t view) {
  StepContext step = batch.context;
  step.view_b = torch::full_like(step.sample_b, view);
  return step;
}

BackboneFactory backbone_factory(const Choice<Backbone>& choice, const ModelContext& build,
                                 const DataShape& data) {
  return [choice, build, data](const std::string& name, Features features) {
    ModelContext own = build;
    if (name != "backbone") {
      own.prefix += name + ".";
      // Its units are placed as those of the first backbone.
      for (const auto& [path, load_U] : build.unit_load) own.unit_load[own.prefix + path] = load_U;
    }
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

template <class T>
static std::vector<std::shared_ptr<T>> modules_of(const torch::nn::Module& root) {
  std::vector<std::shared_ptr<T>> found;
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (auto one = std::dynamic_pointer_cast<T>(module)) found.push_back(one);
  }
  return found;
}

std::vector<std::shared_ptr<Backbone>> backbones_of(const torch::nn::Module& root) {
  return modules_of<Backbone>(root);
}

std::vector<std::shared_ptr<MoeStage>> moe_stages_of(const torch::nn::Module& root) {
  return modules_of<MoeStage>(root);
}

torch::Tensor mean_over(const torch::Tensor& x, at::IntArrayRef dims) {
  return x.mean(dims, /*keepdim=*/false, wide_dtype(x.scalar_type()));
}

}  // namespace shoal
