#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

#include "models/backbones/decoder.h"
#include "models/blocks/dropout.h"
#include "models/blocks/feed_forward.h"
#include "models/blocks/mlp.h"
#include "runtime/base/size_limits.h"

// b sequences on this rank  S tokens  C width
namespace shoal {

/// How token positions are encoded.
enum class PositionKind {
  kLearned,  ///< a learned vector per position is added to the token embedding
  kRope,     ///< rotary embedding of queries and keys
};

template <>
inline constexpr std::array kEnumWords<PositionKind>{"learned", "rope"};

/// GPT-2 without its language-model head: token and position embeddings, pre-norm decoder blocks,
/// norm. Experts may replace MLPs. Source: Radford et al. 2019. Defaults are GPT-2 small's. Options
/// `position: rope, norm: rms, mlp: swiglu, bias: false` with kv_heads make it Llama.
///
/// Initialisation: weights and embeddings N(0, s), s = init_std; the last layers of residual
/// branches (attention.proj and mlp.fc2, also in experts) N(0, s / sqrt(2 depth)); biases 0; norms
/// 1 and 0. Routers have their own initialisation.
///
/// Own parameters: tokens [V, C], V being the vocabulary rounded up to a multiple of
/// pad_vocabulary; with learned positions also positions [context, C].
class Gpt2 : public Decoder {
 public:
  struct Options {
    int64_t width = 768;
    int64_t depth = 12;
    int64_t heads = 12;
    std::optional<int64_t> kv_heads, hidden, context;
    int64_t pad_vocabulary = 1;
    PositionKind position = PositionKind::kLearned;
    std::optional<double> rope_base;
    NormKind norm = NormKind::kLayer;
    MlpKind mlp = MlpKind::kGelu;
    std::optional<Gelu> gelu;
    bool bias = true;
    bool scale_attn_by_inverse_layer_idx = false;
    double dropout = 0.0;
    double init_std = 0.02;
    FeedForwardOptions feed_forward;

    static constexpr auto fields() {
      return std::tuple{
          field("width", &Options::width, "hidden size C", in_range(1, kMostWidth)),
          field("depth", &Options::depth, "number of blocks", in_range(0, kMostBlocks)),
          field("heads", &Options::heads, "attention heads, a divisor of width",
                in_range(1, kMostWidth)),
          field("kv_heads", &Options::kv_heads,
                "key and value heads, a divisor of heads (grouped-query attention); auto: the same "
                "as heads",
                in_range(1, kMostWidth), unset_word("auto")),
          field("hidden", &Options::hidden,
                "hidden width of a dense MLP; auto: 4 times the width, or for swiglu 8/3 of it, "
                "rounded up to a multiple of 64",
                in_range(1, kMostWidth), unset_word("auto")),
          field("context", &Options::context,
                "maximum number of tokens per sequence; auto: those of a sample of data.source",
                in_range(1, kMostWidth), unset_word("auto"), unit("tokens")),
          field("pad_vocabulary", &Options::pad_vocabulary,
                "round the rows of the embedding up to a multiple of this",
                in_range(1, kMostWidth)),
          field("position", &Options::position, "learned positional embedding, or rotary (RoPE)"),
          field("rope_base", &Options::rope_base, "base of the RoPE angles; auto: 10000", above(0),
                unset_word("auto")),
          field("norm", &Options::norm, "layer norm, or RMS norm; eps is 1e-5"),
          field("mlp", &Options::mlp, "a dense MLP: two layers with a GELU, or SwiGLU"),
          field("gelu", &Options::gelu,
                "GELU of a dense MLP: exact, or the tanh approximation; auto: tanh",
                unset_word("auto")),
          field("bias", &Options::bias,
                "whether attention, dense MLPs and layer norms have biases"),
          field("scale_attn_by_inverse_layer_idx", &Options::scale_attn_by_inverse_layer_idx,
                "divide the attention logits of block i, from 0, by i + 1"),
          field("dropout", &Options::dropout,
                "dropout rate of embeddings, attention and residual branches",
                in_range(0, below(1)), keeps_evaluation()),
          field("init_std", &Options::init_std,
                "standard deviation of the initial weights; the default is GPT-2's, chosen for "
                "widths "
                "around 1,000",
                above(0), keeps_evaluation()),
          inlined(&Options::feed_forward)};
    }
    void validate(Problems& problems) const;
    void resolve();  ///< replaces `auto` by values
    int64_t hidden_width() const;
  };

  static constexpr Sketch kSketch{.lines =
                                      "  width: 128\n"
                                      "  depth: 4\n"
                                      "  heads: 4\n"};  ///< for `shoal new`

  /// Throws ConfigError if the data source gives no tokens, or more in a sample than `context`.
  Gpt2(const Options& options, const Context& context);
  /// Default of the recipe's sparsity.layers: experts, and the layers of PA-DST (paper: "Efficient
  /// Dynamic Structured Sparse Training with Learned Shuffles"), appendix C.5.
  std::vector<std::string> sparse_layers() const override {
    return {"attention", "mlp", "experts"};
  }

 private:
  torch::Tensor embed(const torch::Tensor& token_bS, const torch::Tensor& position,
                      const StepContext& step) const override;

  torch::Tensor positions_TC_;  ///< undefined with `position: rope`
  Dropout drop_embedding_;
};

}  // namespace shoal
