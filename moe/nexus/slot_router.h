#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/module/module.h"
#include "runtime/options/config.h"

// B images  N tokens of an image  D width  U units  s slots of a unit  P = U s slots
namespace shoal {

/// How closely a Nexus layer follows the pseudo-code of its paper.
enum class NexusVariant {
  kNormalised,  ///< logits and queries normalised, initial values scaled to their use
  kPaper,       ///< exactly, with standard normal initial values: does not train
};

template <>
struct EnumNames<NexusVariant> {
  static constexpr std::array names{std::pair{NexusVariant::kNormalised, "normalised"},
                                    std::pair{NexusVariant::kPaper, "paper"}};
};

/// Soft routing: mixes the tokens of an image into slots, and the slots back into tokens.
///
/// Logits A = scale <x, Q>, with scale = exp(log_scale) and x and Q divided by their L2 norms: the
/// router of Soft MoE. Paper: A = <x, Q> over two temperatures, one for each softmax. Parameters:
/// `queries` [U, s, D], normal with standard deviation 1/√D (paper: 1), and `log_scale` [1], or
/// `temperature` [2] of ones. Computes in the dtype of its parameters. Sources: Nexus layer,
/// algorithm A1; Puigcerver et al. 2024, section 2.1 and appendix.
class SlotRouter : public ModuleBase {
 public:
  struct Context {
    int64_t width = 0;
    int64_t num_units = 0;
    int64_t num_slots = 0;  ///< s
    torch::TensorOptions tensor_options;
  };
  /// `scale`: initial value, default √D; the paper's variant has none.
  SlotRouter(NexusVariant variant, std::optional<double> scale, const Context& context);

  struct Weights {
    torch::Tensor dispatch_BNP;  ///< softmax over the tokens of an image
    torch::Tensor combine_BNP;   ///< softmax over slots
  };
  /// [B, N, D] -> two tensors [B, N, P], the slots of a unit side by side; differentiable, in the
  /// dtype of the parameters. is_padding: bool, tokens whose weights are 0; undefined: none.
  Weights route(const torch::Tensor& x_BND, const torch::Tensor& is_padding_BN1 = {}) const;

 private:
  torch::Tensor queries_UsD_, log_scale_, temperature_;
};

}  // namespace shoal
