#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <utility>

#include "runtime/module/module.h"
#include "runtime/options/config.h"

// B images  S tokens  C width
namespace shoal {

inline constexpr double kLayerNormEps = 1e-6;  ///< epsilon of flax's and timm's Mixer

enum class NormKind {
  kLayer,
  kRms,  ///< without centring: x / sqrt(mean of x² + eps); Zhang and Sennrich 2019
};

template <>
struct EnumNames<NormKind> {
  static constexpr std::array names{std::pair{NormKind::kLayer, "layer"},
                                    std::pair{NormKind::kRms, "rms"}};
};

/// Kind and options of a norm.
struct NormOptions {
  NormKind kind = NormKind::kLayer;
  double eps = kLayerNormEps;
  bool bias = true;  ///< for NormKind::kLayer; an RMS norm has no bias
};

/// Norm of x (`normed`), and x as a second output of the same autograd node (`residual`). Use
/// `residual` for the skip connection: the norm's backward pass then adds the gradients of both.
struct NormedBranch {
  torch::Tensor normed, residual;
};

/// Layer norm, (x - mean) / sqrt(var + eps) * weight + bias with population variance, or RMS norm,
/// over the last dimension of a contiguous x. Parameters: weight [width] of ones; bias [width] of
/// zeros, if any; in x's dtype, or in float32 for bfloat16, which is computed in float32.
class LayerNormImpl : public ModuleBase {
 public:
  LayerNormImpl(int64_t width, const torch::TensorOptions& options, const NormOptions& norm = {});
  torch::Tensor forward(const torch::Tensor& x) const { return branch(x).normed; }
  NormedBranch branch(const torch::Tensor& x) const;
  /// branch() with `normed` transposed: [B, S, C] -> [B, C, S].
  NormedBranch branch_transposed(const torch::Tensor& x_BSC) const;

  torch::Tensor weight, bias;

 private:
  NormOptions norm_;
};
TORCH_MODULE(LayerNorm);

}  // namespace shoal
