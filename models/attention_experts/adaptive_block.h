#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "models/attention_experts/attention_experts.h"
#include "models/blocks/attention.h"
#include "models/blocks/block_output.h"
#include "models/blocks/mlp.h"
#include "models/kernels/layer_norm.h"
#include "runtime/module/linear.h"
#include "runtime/module/module.h"

// B images  N tokens  D width
namespace shoal {

/// Epsilon of the denoiser's layer norms, equal to the default of torch.nn.LayerNorm.
inline constexpr double kAdaptiveNormEps = 1e-5;

/// Pre-norm transformer block of a denoiser, whose attention is a mixture of attention experts: y =
/// x + merge(experts(norm(x))), out = y + mlp(norm(y)); merge is a linear layer. Without experts it
/// is the standard block, y = x + attention(norm(x)). Linear layers are drawn from U(-a, a), a = 1
/// / sqrt(fan-in). Source: Adaptive Sparse Attention MoE Architecture, component 5.
class AdaptiveBlockImpl : public ModuleBase {
 public:
  struct Sizes {
    AttentionExperts::Sizes attention;
    int64_t hidden = 0;     ///< width of the MLP's hidden layer
    std::string path = {};  ///< the block's path in the model, `blocks.1`
  };
  /// Without `experts` the block has standard attention and no merge layer.
  AdaptiveBlockImpl(const Sizes& sizes, const std::optional<AttentionExpertsOptions>& experts,
                    const BuildContext& build);
  /// Collective. B may be 0.
  BlockOutput forward(const torch::Tensor& x_BND, const StepContext& step) const;

 private:
  LayerNorm attention_norm_{nullptr}, mlp_norm_{nullptr};
  std::shared_ptr<AttentionExperts> experts_;
  Linear merge_{nullptr};         ///< null without experts
  Attention attention_{nullptr};  ///< null with experts
  Mlp mlp_{nullptr};
};
TORCH_MODULE(AdaptiveBlock);

}  // namespace shoal
