#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "models/causal_backbone.h"
#include "models/kernels/layer_norm.h"

// b sequences on this rank  S tokens  C width
namespace shoal {

inline constexpr double kDecoderEps = 1e-5;  ///< of decoders' norms

/// The frame of a decoder: token embedding, blocks, norm. Members register their blocks and the
/// norm by add_blocks.
///
/// Parameters of its own: tokens [V, C], V the vocabulary rounded up to pad_vocabulary rows.
class DecoderBackbone : public CausalBackbone {
 public:
  ModelOutput forward(const ModelInput& input, const StepContext& step) override;
  int64_t feature_width() const override { return tokens_VC_.size(1); }
  int64_t context_length() const override { return context_; }
  torch::Tensor token_embedding() const override { return tokens_VC_; }
  KeyValueCache make_cache(int64_t b, int64_t capacity) const override;
  torch::Tensor decode(const NewTokens& tokens, KeyValueCache& cache,
                       const StepContext& step) override;

 protected:
  struct Sizes {
    std::string name;  ///< the backbone's
    int64_t width = 0;
    std::optional<int64_t> context;  ///< unset: the tokens of a sample
    int64_t pad_vocabulary = 1;
    double init_std = 0.0;  ///< of the embedding
  };
  /// Throws ConfigError where the data has no tokens, or more in a sample than the context.
  DecoderBackbone(const Sizes& sizes, const Context& context);

  void add_blocks(const torch::nn::ModuleList& blocks, const NormOptions& norm,
                  const BuildContext& build);

  /// The embedding in the dtype to compute in; `position`: [S] or [b, S].
  virtual torch::Tensor embed(const torch::Tensor& token_bS, const torch::Tensor& position,
                              const StepContext& step) const;
  /// What runs each block of a forward pass; it may be called after that pass.
  using BlockPass = std::function<BlockOutput(torch::nn::Module& block, const torch::Tensor& x)>;
  virtual BlockPass block_pass(const StepContext& step, const torch::Tensor& position_S) const = 0;
  /// What runs each block over more tokens. The arguments outlive it.
  using DecodePass = std::function<torch::Tensor(
      torch::nn::Module& block, const torch::Tensor& x_bSC, KeyValueCache::Layer& cache)>;
  virtual DecodePass decode_pass(const StepContext& step, const DecodeStep& decode) const = 0;
  virtual KeyValueCache::Layer make_layer(const torch::nn::Module& block, int64_t b,
                                          int64_t capacity,
                                          const torch::TensorOptions& options) const = 0;

  std::string name_;
  int64_t context_;
  int64_t tokens_;  ///< of a sample
  Features features_;
  bool recomputes_;
  torch::Dtype compute_dtype_;
  torch::Tensor tokens_VC_;
  torch::nn::ModuleList blocks_;
  LayerNorm norm_{nullptr};
};

/// What a decoder builds its layers with.
BuildContext decoder_build(BuildContext build, bool is_causal = true);

}  // namespace shoal
