#include "models/attention_experts/adaptive_block.h"

#include <ATen/ops/matmul.h>

#include "runtime/kernels/bias_activation.h"
#include "runtime/module/fan_in_init.h"

// B images  N tokens  D width
namespace shoal {
namespace {

constexpr double kTorchNormEps = 1e-5;

}  // namespace

AdaptiveBlockImpl::AdaptiveBlockImpl(const Sizes& sizes,
                                     const std::optional<AttentionExpertsOptions>& experts,
                                     const BuildContext& build) {
  const int64_t width = sizes.attention.width;
  const torch::TensorOptions& tensor = build.tensor_options;
  const NormOptions norm{.eps = kTorchNormEps};
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, Linear(in, out, tensor, fan_in_uniform(in), fan_in_uniform(in)));
  };
  attention_norm_ = register_module("attention_norm", LayerNorm(width, tensor, norm));
  if (experts) {
    experts_ = register_module(
        "attention", std::make_shared<AttentionExperts>(*experts, sizes.attention,
                                                        sizes.path + ".attention", build));
    merge_ = linear("merge", width, width);
  } else {
    const Init init = fan_in_uniform(width);
    attention_ =
        register_module("attention", Attention(width, sizes.attention.heads, tensor, init));
  }
  mlp_norm_ = register_module("mlp_norm", LayerNorm(width, tensor, norm));
  fc1_ = linear("fc1", width, sizes.hidden);
  fc2_ = linear("fc2", sizes.hidden, width);
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
  const torch::Dtype dtype = x_BND.scalar_type();
  const torch::Tensor hidden = bias_activation(at::matmul(y.normed, fc1_->weight.to(dtype).t()),
                                               fc1_->bias.to(dtype), Activation::kGelu);
  output.y = y.residual + fc2_->forward(hidden);
  return output;
}

}  // namespace shoal
