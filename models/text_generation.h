#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "models/sampling.h"
#include "models/text_model.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/options/config.h"

namespace shoal {

/// Why generation of a text ended.
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
  uint64_t model_seed = 0;   ///< run.seed of the model's training; keys layers without weights
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
