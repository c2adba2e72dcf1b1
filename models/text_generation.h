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

/// Interface of a task whose model predicts the next token of a text; generate_text needs it.
class TextModel {
 public:
  virtual ~TextModel() = default;
  virtual CausalBackbone& text_backbone() = 0;
  /// Logits [b, V] of the token after each sequence, without the padding rows of the vocabulary,
  /// from the features [b, D] of its last token; float32, or float64 of a float64 model.
  virtual torch::Tensor next_logits(const torch::Tensor& last_bD) const = 0;
  /// Scores the labelled tokens of each sample: float64 [b, 2] on the model's device, the sum of
  /// their log-probabilities in nats, and how many have the highest logit (of equal ones the lowest
  /// id counts). Without gradients. Collective, b may be 0.
  virtual torch::Tensor label_scores(const Batch& batch) = 0;
};

/// Recipe choice of the task `lm`. is_tied: the head is the token embedding; else head.weight.
Choice<Task> language_model(bool is_tied);
/// True if the head of such a choice is the token embedding.
bool has_tied_head(const Choice<Task>& language_model);

/// Why a text ends.
enum class StopReason {
  kTokens,     ///< max_tokens were generated
  kEndOfText,  ///< the model generated the end-of-text token
  kContext,    ///< prompt and text fill the model's context
};

template <>
struct EnumNames<StopReason> {
  static constexpr std::array names{std::pair{StopReason::kTokens, "tokens"},
                                    std::pair{StopReason::kEndOfText, "end_of_text"},
                                    std::pair{StopReason::kContext, "context"}};
};

/// Options of generate_text.
struct GenerationOptions {
  Sampling sampling;
  int64_t max_tokens = 100;  ///< per text
  int64_t batch = 16;        ///< sequences generated at once, over all ranks
  int64_t end_of_text = -1;  ///< id of the end-of-text token; -1: none
  uint64_t seed = 0;         ///< of the sampling
  uint64_t model_seed = 0;   ///< run.seed of the model's training; keys random routers and gates
};

/// The continuation of one prompt.
struct GeneratedText {
  std::vector<int64_t> tokens;  ///< without the prompt and the end-of-text token
  StopReason stop = StopReason::kTokens;
};

/// Called with each new token of sequence `index`, on the rank that holds the sequence.
using OnToken = std::function<void(int64_t index, int64_t token)>;

/// Continues each prompt; TORCH_CHECK that it has at least one token and fewer than the context.
/// Draws are keyed by the seed, the prompt's index and the token's position, so batch size and
/// ranks change a text only through rounding in the model. Each batch is distributed over the
/// ranks, first sequences to rank 0. Collective; every rank passes the same prompts and receives
/// all texts. Throws Error (exit 30) as choose_token does.
std::vector<GeneratedText> generate_text(TextModel& model,
                                         const std::vector<std::vector<int64_t>>& prompts,
                                         const GenerationOptions& options, RankGrid& grid,
                                         const OnToken& on_token = {});

}  // namespace shoal
