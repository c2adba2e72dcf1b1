#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/causal_backbone.h"
#include "models/decoder/decoder_block.h"
#include "models/kernels/layer_norm.h"
#include "runtime/module/products.h"

// b sequences on this rank  S tokens  C width
namespace shoal {

inline constexpr double kDecoderEps = 1e-5;  ///< epsilon of decoders' norms

/// Implements CausalBackbone by a token embedding, blocks and a final norm. A derived class makes
/// the blocks in its constructor.
///
/// Own parameters: tokens [V, C], V being the vocabulary rounded up to a multiple of
/// pad_vocabulary.
class Decoder : public CausalBackbone, public CountsProducts {
 public:
  ModelOutput forward(const ModelInput& input, const StepContext& step) override;
  int64_t feature_width() const override { return shape_.width; }
  int64_t context_length() const override { return context_; }
  torch::Tensor token_embedding() const override { return tokens_VC_; }
  KeyValueCache make_cache(int64_t b, int64_t capacity) const override;  ///< for generation
  torch::Tensor decode(const NewTokens& tokens, KeyValueCache& cache,
                       const StepContext& step) override;
  /// Lists the products of one sample, by which multiply-adds are counted. Ignores `rows`.
  void list_products(double rows, ProductList& list) const override;

 protected:
  struct Shape {
    std::string_view name = "";  ///< the backbone's, for error messages
    int64_t width = 0, head_width = 0;
    std::optional<int64_t> context = {};  ///< unset: the number of tokens in a sample
    int64_t pad_vocabulary = 1;
    double init_std = 0.0;                 ///< of the token embedding
    std::optional<double> rope_base = {};  ///< unset: blocks rotate nothing
    NormOptions norm = {};
    bool has_gates = false;  ///< blocks read DecoderPass::is_token_bS
  };
  /// Throws ConfigError if the data source gives no tokens, or more in a sample than `context`.
  Decoder(const Shape& shape, const Context& context);
  /// Returns the settings (ranks, device, dtype) from which blocks are built: `build`, with
  /// is_causal as given and has_token_ids true. MoE layers read both: is_causal refuses routers
  /// that look at later tokens, has_token_ids allows routers that read vocabulary ids.
  static ModelContext block_context(ModelContext build, bool is_causal);
  /// Registers the blocks, each a DecoderBlock, and a norm with these tensor options. To be called
  /// once, at the end of a derived class's constructor.
  void set_blocks(torch::nn::ModuleList blocks, const torch::TensorOptions& options);
  const torch::nn::ModuleList& blocks() const { return blocks_; }
  /// Activations of tokens in the compute dtype; `position`: [S] or [b, S].
  virtual torch::Tensor embed(const torch::Tensor& token_bS, const torch::Tensor& position,
                              const StepContext& step) const;

  torch::Tensor tokens_VC_;
  torch::Dtype compute_dtype_;

 private:
  /// `position`: [S] or [b, 1, S].
  Rotation rotation(const torch::Tensor& position) const;

  Shape shape_;
  int64_t context_;
  int64_t tokens_;  ///< tokens per sample
  Features features_;
  bool recomputes_;
  torch::nn::ModuleList blocks_{nullptr};
  LayerNorm norm_{nullptr};
};

}  // namespace shoal
