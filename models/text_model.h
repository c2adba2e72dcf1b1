#pragma once

#include <torch/types.h>

#include "models/causal_backbone.h"

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

}  // namespace shoal
