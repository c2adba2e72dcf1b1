#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "moe/experts/expert_mlp.h"
#include "runtime/base/size_limits.h"
#include "runtime/kernels/bias_activation.h"
#include "runtime/module/linear.h"
#include "runtime/module/module.h"
#include "runtime/options/config.h"

// T tokens  D width  H hidden width of all shared experts together
namespace shoal {

/// Shared experts of a MoE layer: applied to every token, with weight 1, on its own rank. All
/// `count` are computed as one MLP of `count` times the hidden width, which is the same function.
///
/// Parameters: `fc1.weight` [D, H], `fc1.bias` [H], `fc2.weight` [H, D], `fc2.bias` [D], and with a
/// gate `gate.weight` [D, H], `gate.bias` [H]; initialised like routed experts unless `inits` is
/// given. Source: Dai et al. 2024 (DeepSeekMoE), section 3.2.
class SharedExpert : public ModuleBase {
 public:
  struct Options {
    int64_t count = 0;
    std::optional<int64_t> hidden;  ///< default: 4 D
    bool gated = false;
    Activation activation = Activation::kGelu;
    bool bias = true;

    int64_t hidden_at(int64_t width) const { return hidden.value_or(4 * width); }
    /// Without shared experts resets `hidden`, so that recipes that differ only in it are equal.
    void resolve() {
      if (count == 0) hidden.reset();
    }
    static constexpr auto fields() {
      return std::tuple{
          field("count", &Options::count, "shared experts; 0: none", in_range(0, kMostUnits)),
          field("hidden", &Options::hidden, "hidden width of each, auto: 4 times the width",
                in_range(1, kMostWidth), unset_word("auto")),
          field("gated", &Options::gated, "use gated MLPs (SwiGLU with activation silu)"),
          field("activation", &Options::activation, "activation of an expert, or of its gate"),
          field("bias", &Options::bias, "whether their layers have biases")};
    }
  };
  /// `width`: D of the tokens. options.count must be at least 1.
  SharedExpert(const Options& options, int64_t width, const torch::TensorOptions& tensor_options,
               const std::optional<MlpInits>& inits = {});
  /// [T, D] -> [T, D].
  torch::Tensor forward(const torch::Tensor& x_TD) const;

 private:
  Activation activation_;
  ExpertWeights weights_;  ///< the parameters, without the dimension of experts
};

}  // namespace shoal
