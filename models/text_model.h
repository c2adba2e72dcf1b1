#pragma once

#include <torch/types.h>

#include "models/causal_backbone.h"
#include "models/task.h"
#include "runtime/options/registry.h"

// b sequences on this rank  D features  V vocabulary
namespace shoal {

/// A task whose model predicts the next token of a text, which text generation requires.
class TextModel {
 public:
  virtual ~TextModel() = default;
  virtual CausalBackbone& text_backbone() = 0;
  /// Logits [b, V] of the token after each sequence, without padding of the vocabulary, from the
  /// features [b, D] of its last token; float32, or float64 in a float64 model.
  virtual torch::Tensor next_logits(const torch::Tensor& last_bD) const = 0;
};

/// The task `lm`. The head is the token embedding if tied, else a separate matrix, head.weight.
Choice<Task> language_model(bool is_tied);
bool has_tied_head(const Choice<Task>& language_model);

}  // namespace shoal
