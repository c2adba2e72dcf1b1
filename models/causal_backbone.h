#pragma once

#include <torch/types.h>

#include <cstdint>

#include "models/backbone.h"
#include "models/decoder/key_value_cache.h"

// b sequences on this rank  S tokens  D features  V rows of the embedding
namespace shoal {

/// Interface that the task `lm` and generation need of a backbone: an embedding table and a KV
/// cache. Attention is causal unless is_causal() is false, which language models refuse.
class CausalBackbone : public Backbone {
 public:
  /// False if the recipe lets tokens attend to later ones.
  virtual bool is_causal() const { return true; }
  /// Maximum number of tokens in a sequence.
  virtual int64_t context_length() const = 0;
  /// The embedding table [V, D], V at least the vocabulary of the data. A tied head multiplies
  /// features with the same tensor.
  virtual torch::Tensor token_embedding() const = 0;
  /// Returns an empty cache for `b` sequences of up to `capacity` tokens.
  virtual KeyValueCache make_cache(int64_t b, int64_t capacity) const = 0;
  /// Appends new tokens to the cached sequences and returns their normed features [b, S, D]; those
  /// of padding are unspecified. Updates the cache; applies no dropout. Collective, b may be 0.
  virtual torch::Tensor decode(const NewTokens& tokens, KeyValueCache& cache,
                               const StepContext& step) = 0;
};

}  // namespace shoal
