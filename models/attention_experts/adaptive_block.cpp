#include "models/attention_experts/adaptive_block.h"

// B images  N tokens  D width
namespace shoal {

AdaptiveBlockImpl::AdaptiveBlockImpl(const Sizes& sizes,
                                     const std::optional<AttentionExpertsOptions>& experts,
                                     const BuildContext& build) {
  const int64_t width = sizes.attention.width;
  const torch::TensorOptions& tensor = build.tensor_options;
  const NormOptions norm{.eps = kAdaptiveNormEps};
  const auto linear = [&](int64_t in, int64_t out) {
    return Linear(in, out, tensor, Init::fan_in_uniform(in), Init::fan_in_uniform(in));
  };
  attention_norm_ = register_module("attention_norm", LayerNorm(width, tensor, norm));
  if (experts) {
    experts_ = register_module(
        "attention", std::make_shared<AttentionExperts>(*experts, sizes.attention,
                                                        sizes.path + ".attention", build));
    merge_ = register_module("merge", linear(width, width));
  } else {
    const Init init = Init::fan_in_uniform(width);
    attention_ =
        register_module("attention", Attention(width, sizes.attention.heads, tensor, init));
  }
  mlp_norm_ = register_module("mlp_norm", LayerNorm(width, tensor, norm));
  mlp_ = register_module("mlp",
                         Mlp(linear(width, sizes.hidden), linear(sizes.hidden, width), Gelu::kErf));
}

BlockOutput AdaptiveBlockImpl::forward(const torch::Tensor& x_BND, const StepContext& step) const {
  const NormedBranch x = attention_norm_->branch(x_BND);
  BlockOutput output;
  if (experts_) {
    MoeOutput mixed = experts_->forward(x.normed, step);
    output.y = merge_->forward(mixed.y_BRD);
    output.auxiliary_loss = mixed.auxiliary_loss;
    output.moe.push_back(std::move(mixed.stats));
  } else {
    output.y = attention_->forward(x.normed);
  }
  const NormedBranch y = mlp_norm_->branch(x.residual + output.y);
  output.y = y.residual + mlp_->forward(y.normed);
  return output;
}

}  // namespace shoal
