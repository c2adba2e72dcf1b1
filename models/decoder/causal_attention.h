#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

#include "models/blocks/dropout.h"
#include "models/decoder/key_value_cache.h"
#include "models/decoder/rotary.h"
#include "runtime/module/linear.h"
#include "runtime/module/module.h"
#include "runtime/module/products.h"

// B sequences  S tokens  C width  N heads  M heads of keys and values  H head width = C / N
namespace shoal {

/// [B, S, N H] -> [B, N, S, H], a view in the layout of LibTorch's fused attention kernels.
torch::Tensor split_heads(const torch::Tensor& x_BSC, int64_t head_width);

/// Causal multi-head self-attention, proj(softmax(scale q kᵀ) v), in which a token attends to
/// itself and earlier tokens. With M < N it is grouped-query attention: query head n uses key and
/// value head n M / N. Source: Vaswani et al. 2017, section 3.2; Radford et al. 2019 (GPT-2);
/// Ainslie et al. 2023 (GQA).
///
/// Parameters: qkv.weight [(N + 2 M) H, C], rows of q, then k, then v, each head by head (GPT-2's
/// c_attn transposed); proj.weight [C, C]; both with biases if `has_bias`.
class CausalAttentionImpl : public ModuleBase, public CountsProducts {
 public:
  struct Sizes {
    int64_t width = 0, heads = 0;
    int64_t kv_heads = 0;  ///< M, a divisor of heads
    double scale = 1.0;    ///< factor of the logits
    double dropout = 0.0;  ///< rate of dropout on attention probabilities
    bool has_bias = true;
    Init qkv = {}, proj = {};  ///< initialisation of the weights; biases are zero
    std::string path = {};     ///< `blocks.3.attention`; keys the draws of dropout
  };
  /// TORCH_CHECK unless kv_heads divides heads and heads width.
  CausalAttentionImpl(const Sizes& sizes, const torch::TensorOptions& options);
  /// [B, S, C] -> [B, S, C]; `rotation` is applied to queries and keys. B may be 0.
  torch::Tensor forward(const torch::Tensor& x_BSC, const Rotation& rotation,
                        const StepContext& step) const;
  /// Attention of S new tokens to cached and new tokens; adds the new ones' keys and values to
  /// `cache`. `decode`: positions and mask of the new tokens. No gradients, no dropout.
  torch::Tensor decode(const torch::Tensor& x_BSC, const Rotation& rotation,
                       KeyValueCache::Layer& cache, const DecodeStep& decode) const;
  /// Returns an empty cache for `b` sequences of up to `capacity` tokens.
  KeyValueCache::Layer make_cache(int64_t b, int64_t capacity,
                                  const torch::TensorOptions& options) const;
  /// Lists the products of one sample of `rows` rows, by which multiply-adds are counted.
  void list_products(double rows, ProductList& list) const override;  ///< for FLOP counts

  Linear qkv{nullptr}, proj{nullptr};

 private:
  struct Heads {
    torch::Tensor query_BNSH, key_BMSH, value_BMSH;
  };
  Heads heads_of(const torch::Tensor& x_BSC, const Rotation& rotation) const;
  /// softmax(scale q kᵀ) v by LibTorch's fused kernel; undefined mask: no mask.
  torch::Tensor attend(const Heads& heads, const torch::Tensor& mask, bool is_causal) const;
  torch::Tensor project(const torch::Tensor& y_BNSH) const;

  Sizes sizes_;
  Dropout dropout_;
};
TORCH_MODULE(CausalAttention);

}  // namespace shoal
