#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <utility>

#include "runtime/kernels/bias_activation.h"
#include "runtime/module/linear.h"
#include "runtime/module/module.h"
#include "runtime/options/config.h"

// B images  S tokens  C width
namespace shoal {

/// Variants of GELU: the exact function (timm's default) and the tanh approximation (flax's Mixer).
enum class Gelu { kErf, kTanh };

template <>
struct EnumNames<Gelu> {
  static constexpr std::array names{std::pair{Gelu::kErf, "erf"}, std::pair{Gelu::kTanh, "tanh"}};
};

Activation activation_of(Gelu gelu);  ///< for kernels that also add a bias

struct MlpShape {
  int64_t width = 0, hidden = 0;
  bool has_bias = true;
};

/// Linear, GELU, Linear: width -> hidden -> width; by default Glorot-uniform, biases N(0, 1e-6).
class MlpImpl : public ModuleBase {
 public:
  MlpImpl(int64_t width, int64_t hidden, Gelu gelu, const torch::TensorOptions& options);
  MlpImpl(const MlpShape& shape, Gelu gelu, const MlpInits& inits,
          const torch::TensorOptions& options);
  /// Takes layers that are initialised already.
  MlpImpl(Linear first, Linear second, Gelu gelu);
  /// [..., width] -> [..., width].
  torch::Tensor forward(const torch::Tensor& x) const;
  /// Applies the MLP along dim S = width of a contiguous [B, S, C], without transposing it.
  torch::Tensor forward_over_tokens(const torch::Tensor& x_BSC) const;
  Gelu gelu() const { return gelu_; }

  Linear fc1{nullptr}, fc2{nullptr};

 private:
  Gelu gelu_;
};
TORCH_MODULE(Mlp);

/// SwiGLU MLP: fc2(silu(gate(x)) * fc1(x)), width -> hidden -> width; gate is initialised like fc1.
/// Hugging Face's Llama calls the layers gate_proj (gate), up_proj (fc1) and down_proj (fc2).
/// Source: Shazeer 2020 (GLU variants), equation 6.
class GatedMlpImpl : public ModuleBase {
 public:
  GatedMlpImpl(const MlpShape& shape, const MlpInits& inits, const torch::TensorOptions& options);
  /// [..., width] -> [..., width].
  torch::Tensor forward(const torch::Tensor& x) const;

  Linear gate{nullptr}, fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(GatedMlp);

}  // namespace shoal
