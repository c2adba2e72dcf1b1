#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "models/blocks/block_output.h"
#include "models/blocks/mlp.h"
#include "models/kernels/layer_norm.h"
#include "moe/build_context.h"
#include "moe/moe_layer.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/linear.h"
#include "runtime/module/module.h"
#include "runtime/module/products.h"
#include "runtime/options/config.h"

// B images  S tokens  C width  P new tokens (S')  W new width (C')
namespace shoal {

/// Dense Mixer block (MLPs over tokens, then channels): y1 = x + t(MLP_S(t(norm(x)))), with t the
/// transpose of tokens and channels, and y = y1 + MLP_C(norm(y1)). Source: Tolstikhin et al. 2021
/// (MLP-Mixer), eq. 1; in Sparse-MLP (Lou et al. 2021) eq. 8 and 9.
class MixerBlockImpl : public ModuleBase, public CountsProducts {
 public:
  struct Sizes {
    int64_t tokens = 0, width = 0;                 ///< S, C
    int64_t token_hidden = 0, channel_hidden = 0;  ///< D_S, D_C
    Gelu gelu = Gelu::kErf;
  };
  MixerBlockImpl(const Sizes& sizes, const torch::TensorOptions& options);
  torch::Tensor forward(const torch::Tensor& x_BSC) const;
  /// Lists the products of one sample of `rows` rows, by which multiply-adds are counted.
  void list_products(double rows, ProductList& list) const override;  ///< for FLOP counts

  LayerNorm token_norm{nullptr}, channel_norm{nullptr};
  Mlp token_mlp{nullptr}, channel_mlp{nullptr};
};
TORCH_MODULE(MixerBlock);

/// Options of a sparse block of Sparse-MLP (Lou et al. 2021, "Cross-token Modeling with Conditional
/// Computation"). By default S' = 2S and C' = C / 2, as in the paper.
struct SparseOptions {
  bool rescale = true;
  std::optional<int64_t> tokens;  ///< S'
  std::optional<int64_t> width;   ///< C'
  MoeOptions token_moe;
  std::optional<MoeOptions> channel_moe = MoeOptions{};
  std::optional<int64_t> channel_hidden;  ///< hidden width D_C' of a dense MLP in place of MoE_C
  bool outer_residual = false;

  static constexpr auto fields() {
    return std::tuple{
        field("rescale", &SparseOptions::rescale,
              "rescale [tokens, width] at the block's input and output (eq. 4 and 7)"),
        field("tokens", &SparseOptions::tokens, "new patches S'; auto: twice the model's",
              in_range(1, kMostWidth), unset_word("auto")),
        field("width", &SparseOptions::width, "new hidden size C'; auto: half the model's",
              in_range(1, kMostWidth), unset_word("auto")),
        field("token_moe", &SparseOptions::token_moe, "MoE_S, which mixes tokens"),
        field("channel_moe", &SparseOptions::channel_moe,
              "MoE_C, which mixes channels; null: a dense MLP of channel_hidden"),
        field("channel_hidden", &SparseOptions::channel_hidden,
              "hidden width of the dense MLP in MoE_C's place", in_range(1, kMostWidth)),
        field("outer_residual", &SparseOptions::outer_residual,
              "add the block's input to its output, unlike the paper")};
  }
  void validate(Problems& problems) const;
};

/// Sparse block of Sparse-MLP, eq. 4 to 7; t is the transpose of tokens and channels:
///
///     h  = W_s1 (x W_c1ᵀ + b_c1) + b_s1       Rescale_1, channels first: [B, P, W]
///     y1 = h + t(MoE_S(t(norm(h))))           MoE_S routes the channels, as rows of length P
///     y  = y1 + MoE_C(norm(y1))               MoE_C routes the tokens, as rows of length W
///     out = (W_s2 y + b_s2) W_c2ᵀ + b_c2      Rescale_2, tokens first: [B, S, C]
///
/// With `outer_residual` x is added to the output. The paper does not give the order of a rescale's
/// two linear layers; this one needs half the multiply-adds of the other.
class SparseBlockImpl : public ModuleBase, public CountsProducts {
 public:
  struct Sizes {
    int64_t tokens = 0, width = 0;  ///< S, C of the model
    Gelu gelu = Gelu::kErf;         ///< of a dense MLP in place of MoE_C
  };
  /// `path`: the block's place in the model, `blocks.10`.
  SparseBlockImpl(const SparseOptions& options, const Sizes& sizes, const std::string& path,
                  const BuildContext& build);
  /// Returns y, balance losses and statistics of experts. Collective. B may be 0.
  BlockOutput forward(const torch::Tensor& x_BSC, const StepContext& step);
  /// Lists the products of one sample of `rows` rows, by which multiply-adds are counted.
  void list_products(double rows, ProductList& list) const override;  ///< for FLOP counts

 private:
  bool has_outer_residual_;
  Linear channels_in_{nullptr}, tokens_in_{nullptr}, tokens_out_{nullptr}, channels_out_{nullptr};
  LayerNorm token_norm_{nullptr}, channel_norm_{nullptr};
  std::shared_ptr<MoeLayer> moe_s_, moe_c_;
  Mlp channel_mlp_{nullptr};  ///< set if moe_c_ is not
};
TORCH_MODULE(SparseBlock);

}  // namespace shoal
