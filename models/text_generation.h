#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "models/causal_backbone.h"
#include "models/sampling.h"
#include "models/task.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/options/config.h"
#include "runtime/options/registry.h"

// b sequences on this rank  D features  V vocabulary
namespace shoal {

/// A task whose model predicts the next token of a text: what text is generated with.
class TextModel {
 public:
  virtual ~TextModel() = default;
  virtual CausalBackbone& text_backbone() = 0;
  /// Logits [b, V] of the token after each sequence, without the vocabulary's padding, from the
  /// features [b, D] of its last token; float32, or float64 of a float64 model.
  virtual torch::Tensor next_logits(const torch::Tensor& last_bD) const = 0;
};

/// The task `lm`. Its head is the token embedding (tied), or a matrix of its own, head.weight.
Choice<Task> language_model(bool is_tied);
bool has_tied_head(const Choice<Task>& language_model);

/// Why a text ends.
enum class StopReason {
  kTokens,     ///< as many as were asked for
  kEndOfText,  ///< the model chose the token that ends a text
  kContext,    ///< prompt and text fill the model's context
};

template <>
struct EnumNames<StopReason> {
  static constexpr std::array names{std::pair{StopReason::kTokens, "tokens"},
                                    std::pair{StopReason::kEndOfText, "end_of_text"},
                                    std::pair{StopReason::kContext, "context"}};
};

struct GenerationOptions {
  Sampling sampling;
  int64_t max_tokens = 100;  ///< of each text
  int64_t batch = 16;        ///< sequences at once, over all ranks
  int64_t end_of_text = -1;  ///< the id that ends a text; -1: none
  uint64_t seed = 0;         ///< of the draws
  uint64_t model_seed = 0;  ///< run.seed of the model's training, which keys layers without weights
};

struct GeneratedText {
  std::vector<int64_t> tokens;  ///< after the prompt, without the one that ends it
  StopReason stop = StopReason::kTokens;
};

/// Called with each token of sequence `index` as it is chosen, on the rank that has the sequence.
using OnToken = std::function<void(int64_t index, int64_t token)>;

/// Continues each prompt, which has at least one token and fewer than the model's context
/// (TORCH_CHECK). Draws are keyed by the seed, the prompt's index and the token's position, so that
/// batch and ranks change a text only as far as they change how the model's products are rounded.
/// Each batch is spread over the ranks, the first sequences on rank 0. Collective; every rank gives
/// the same prompts and gets all texts. Throws Error (exit 30) as choose_token.
std::vector<GeneratedText> generate_text(TextModel& model,
                                         const std::vector<std::vector<int64_t>>& prompts,
                                         const GenerationOptions& options, RankGrid& grid,
                                         const OnToken& on_token = {});

}  // namespace shoal
