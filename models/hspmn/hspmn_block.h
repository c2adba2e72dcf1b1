#pragma once

#include <torch/types.h>

#include <array>

#include "models/blocks/feed_forward.h"
#include "models/decoder/decoder_block.h"
#include "models/hspmn/kernels/causal_conv.h"
#include "models/hspmn/sparse_attention.h"
#include "models/hspmn/token_gate.h"
#include "models/kernels/layer_norm.h"
#include "runtime/module/products.h"

// b sequences  S tokens  C width
namespace shoal {

/// Attention of a block's contextual stream.
enum class ContextualStream {
  kSparse,  ///< of tokens selected by a gate
  kDense,   ///< of every token
  kNone,    ///< no attention
};

template <>
inline constexpr std::array kEnumWords<ContextualStream>{"sparse", "dense", "none"};

/// Block of two parallel streams: y = x + MLP(conv(norm(x))) + open * Attention(norm(x)).
///
/// Every token passes the reflexive stream, a causal convolution over three tokens and a SwiGLU MLP
/// or experts. Only tokens with an open gate, a share of about GateOptions::rate, pass the
/// contextual stream, attention: `open` is 1 for them, else 0, with the gradient of a sigmoid
/// (straight-through). Source: HSPMN v2.1 (Jędryczko 2025), section 3; norms as in its code.
class HspmnBlockImpl : public DecoderBlock, public CountsProducts {
 public:
  struct Sizes {
    FeedForward::Place place;
    NormOptions norm;
    SparseAttentionImpl::Sizes attention;
    int64_t context = 0;    ///< maximum number of tokens in a sequence
    bool is_causal = true;  ///< false: open tokens also attend to later tokens
  };
  HspmnBlockImpl(const Sizes& sizes, ContextualStream stream, const GateOptions& gate,
                 const FeedForwardOptions& feed_forward, const BuildContext& build);

  /// Returns y, auxiliary loss and MoE statistics; in evaluation of a sparse stream also
  /// is_open_bS, the tokens that attend. Collective. x must be contiguous, b may be 0.
  BlockOutput forward(const torch::Tensor& x_bSC, const DecoderPass& pass) override;
  KeyValueCache::Layer make_cache(int64_t b, int64_t capacity,
                                  const torch::TensorOptions& options) const override;
  /// Lists the products of a sample of `rows` tokens, to count multiply-adds. With a gate only
  /// gate()->open_tokens(rows) of them have queries.
  void list_products(double rows, ProductList& list) const override;
  /// The block's token gate; null unless the contextual stream is sparse.
  const TokenGate& gate() const { return gate_; }

 private:
  /// The reflexive stream with its residual, x + MLP(conv(norm(x))).
  BlockOutput reflexive(const torch::Tensor& x_bSC, const DecoderPass& pass);
  /// The reflexive stream of a dense MLP without gradients, computed for some tokens at a time.
  torch::Tensor reflexive_in_parts(const torch::Tensor& x_bSC, const DecoderPass& pass);
  torch::Tensor convolve(const torch::Tensor& u_bSC, const DecoderPass& pass) const;
  torch::Tensor attend_densely(const torch::Tensor& u_bSC, const DecoderPass& pass) const;
  /// Open tokens, and the outputs [R, C] of their attention.
  struct SparseRows {
    OpenTokens open;
    torch::Tensor y_RC;
  };
  SparseRows attend_sparsely(const torch::Tensor& u_bSC, const DecoderPass& pass);
  torch::Tensor limits(const DecoderPass& pass) const;

  Sizes sizes_;
  ContextualStream stream_;
  LayerNorm mlp_norm_{nullptr};
  CausalConv conv_{nullptr};
  FeedForward feed_forward_;
  LayerNorm attention_norm_{nullptr};
  TokenGate gate_{nullptr};
  SparseAttention attention_{nullptr};
  CausalAttention dense_attention_{nullptr};
};
TORCH_MODULE(HspmnBlock);

}  // namespace shoal
