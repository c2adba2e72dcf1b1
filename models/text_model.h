#pragma once

#include <torch/types.h>

#include "models/causal_backbone.h"
#include "models/task.h"
#include "runtime/options/registry.h"

// b sequences on this rank  D features  V vocabulary
namespace shoal {

/// A task that predicts the next token, so that its model can generate text.
class TextModel {
 public:
  virtual ~TextModel() = default;
  virtual CausalBackbone& text_backbone() = 0;
  /// Next-token logits [b, V], without padding of the vocabulary, from the last token's features
  /// [b, D]; float32, or float64 for a float64 model.
  virtual torch::Tensor next_logits(const torch::Tensor& last_bD) const = 0;
};

/// The task `lm`, with tied embeddings or a separate output matrix, head.weight.
Choice<Task> language_model(bool is_tied);
bool has_tied_head(const Choice<Task>& language_model);

}  // namespace shoal
