#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "models/backbone.h"
#include "models/decoder/key_value_cache.h"

// b sequences on this rank  S tokens  D features  V rows of the embedding
namespace shoal {

/// A decoder, with a cache of keys and values. A token sees no later one of its sample, unless
/// is_causal() is false, which language models refuse.
class CausalBackbone : public Backbone {
 public:
  /// False where the recipe lets tokens see later ones, which a language model must not.
  virtual bool is_causal() const { return true; }
  /// Tokens of a sequence at most.
  virtual int64_t context_length() const = 0;
  /// [V, D], V at least the data's vocabulary: the rows that token ids select. A tied head
  /// multiplies the features with the same tensor.
  virtual torch::Tensor token_embedding() const = 0;
  /// For `b` sequences of up to `capacity` tokens, none of which is there yet.
  virtual KeyValueCache make_cache(int64_t b, int64_t capacity) const = 0;
  /// The normed features [b, S, D] of more tokens of each sequence, which follow those that the
  /// cache holds and are then in the cache too; those of padding are unspecified. Without dropout.
  /// Collective, b may be 0.
  virtual torch::Tensor decode(const NewTokens& tokens, KeyValueCache& cache,
                               const StepContext& step) = 0;
};

}  // namespace shoal
