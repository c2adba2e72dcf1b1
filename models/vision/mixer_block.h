#pragma once

#include <torch/types.h>

#include <cstdint>

#include "models/blocks/mlp.h"
#include "models/kernels/layer_norm.h"
#include "runtime/module/module.h"
#include "runtime/module/products.h"

// B images  S tokens  C width
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

}  // namespace shoal
