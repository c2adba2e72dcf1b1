#pragma once

#include <cstdint>
#include <string_view>

#include "models/blocks/feed_forward.h"

namespace shoal {

/// How often a model's parameters are multiplied, from which its FLOPs are counted. A backbone
/// implements it, and a task whose parameters beside its backbone take other than one row a sample
/// and view; the FLOPs of a backbone that does not are unknown.
class ProductCounts {
 public:
  virtual ~ProductCounts() = default;
  /// Rows of one view of a sample that this parameter multiplies, for a stack those that a chosen
  /// unit gets of a token each; 0 for tables and for what is added. Of a memory unit's values as of
  /// its keys. `parameter`: its name below this module.
  virtual double rows_of(std::string_view parameter) const = 0;
  /// Multiply-adds of one view of a sample between activations, such as attention's: of a causal
  /// one, half of all pairs of tokens.
  virtual double between_activations() const { return 0.0; }
};

/// What Nexus layers add to the counts of a backbone with equal blocks.
struct NexusCounts {
  NexusCounts(const FeedForwardOptions& options, int64_t depth);
  /// Of a parameter in a block, where all that is not in a Nexus layer's units takes `tokens`.
  double rows_of(std::string_view parameter, double tokens) const;
  /// Mixing of tokens into slots and of slots into tokens.
  double between_activations(double tokens, double width) const;

  double layers = 0, slots_of_unit = 0, units = 0;
};

}  // namespace shoal
