#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "models/backbone.h"
#include "models/decoder/key_value_cache.h"

// b sequences on this rank  S tokens  D features  V rows of the embedding
namespace shoal {

/// A decoder with a cache of keys and values. A token does not see later ones of its sample, unless
/// is_causal() is false, which language models refuse.
class CausalBackbone : public Backbone {
 public:
  /// False if the recipe lets tokens see later ones.
  virtual bool is_causal() const { return true; }
  /// Maximal number of tokens of a sequence.
  virtual int64_t context_length() const = 0;
  /// [V, D], V at least the data's vocabulary: the embedding of token ids. A tied head multiplies
  /// the features with the same tensor.
  virtual torch::Tensor token_embedding() const = 0;
  /// An empty cache for `b` sequences of up to `capacity` tokens.
  virtual KeyValueCache make_cache(int64_t b, int64_t capacity) const = 0;
  /// Adds new tokens of each sequence to the cache and returns their normed features [b, S, D];
  /// features of padding are unspecified. Without dropout. Collective, b may be 0.
  virtual torch::Tensor decode(const NewTokens& tokens, KeyValueCache& cache,
                               const StepContext& step) = 0;
};

}  // namespace shoal
