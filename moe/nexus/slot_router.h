#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>

#include "runtime/module/module.h"
#include "runtime/options/config.h"

// B images  N tokens of an image  D width  U units  s slots of a unit  P = U s slots
namespace shoal {

/// How closely a Nexus layer (experts and memory units, one soft router) follows its paper.
enum class NexusVariant {
  kNormalised,  ///< normalised logits and queries, initial values scaled by width
  kPaper,       ///< as published, with standard normal initial values; training makes no progress
};

template <>
inline constexpr std::array kEnumWords<NexusVariant>{"normalised", "paper"};

/// The soft router of Soft MoE and Nexus layers: computes the weights that mix the tokens of an
/// image into slots (s for each unit) and the units' outputs back into tokens. Sources: "OneSparse:
/// A Unified Framework for Sparse Activation Layers in Vision Models", algorithm A1 (Nexus layer);
/// Puigcerver et al. 2024 (Soft MoE), section 2.1 and appendix.
///
/// Normalised variant, as in Soft MoE: logits A = exp(log_scale) <x, Q>, x and Q divided by their
/// L2 norms; parameters `queries` Q [U, s, D], normal with standard deviation 1/√D, and `log_scale`
/// [1]. Paper's variant: A = <x, Q>, divided by a temperature for each of the two softmaxes;
/// `queries` of standard deviation 1, `temperature` [2] of ones. Computes in its parameters' dtype.
class SlotRouter : public ModuleBase {
 public:
  struct Context {
    int64_t width = 0;
    int64_t num_units = 0;  ///< U, over all ranks
    int64_t num_slots = 0;  ///< s, slots of a unit
    torch::TensorOptions tensor_options;
  };
  /// `scale`: initial value of exp(log_scale), default √D; not used by the paper's variant.
  SlotRouter(NexusVariant variant, std::optional<double> scale, const Context& context);

  struct Weights {
    torch::Tensor dispatch_BNP;  ///< softmax over the tokens of an image
    torch::Tensor combine_BNP;   ///< softmax over slots
  };
  /// Returns the weights of x_BND, differentiable, in the dtype of the parameters; slot p belongs
  /// to unit p / s. is_padding_BN1: bool, true for tokens that get weights of 0; default: no token.
  Weights route(const torch::Tensor& x_BND, const torch::Tensor& is_padding_BN1 = {}) const;

 private:
  torch::Tensor queries_UsD_, log_scale_, temperature_;
};

}  // namespace shoal
