#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/blocks/feed_forward.h"

namespace shoal {

/// Multiply-adds of products between activations.
struct ActivationProducts {
  /// What the names of the parameters begin with whose results they multiply: the products follow
  /// the last of them.
  std::string behind;
  double multiply_adds = 0;
};

/// Counts how often a model's parameters are multiplied, from which FLOPs follow. Implemented by
/// backbones, and by tasks with parameters that take other than one row a sample and view; without
/// it the FLOPs are unknown.
class ProductCounts {
 public:
  virtual ~ProductCounts() = default;
  /// Rows of one view of a sample that this parameter multiplies, for a stack those that a chosen
  /// unit gets of a token each; 0 for tables and for what is added. Of a memory unit's values as of
  /// its keys. `parameter`: its name below this module.
  virtual double rows_of(std::string_view parameter) const = 0;
  /// Products between activations of one view of a sample, such as attention's; causal attention
  /// counts half of all pairs of tokens.
  virtual std::vector<ActivationProducts> between_activations() const { return {}; }
  /// Where a backbone applies a parameter: in the forward pass, those of a lower place come first.
  /// By default the stem is at 0, the backbone's own parameters, which are added to its result or
  /// are tables of tokens, at 1, block i at place_of_block(i), all else behind the blocks.
  virtual int64_t place_of(std::string_view parameter) const;
  /// Even numbers: what lies between two blocks takes an odd one.
  static int64_t place_of_block(int64_t block) { return 2 * block + 2; }
};

/// The number behind `begin` in a parameter's name: 3 in `blocks.3.mlp.fc1.weight`.
int64_t number_behind(std::string_view begin, std::string_view parameter);

/// What Nexus layers add to the counts of a backbone's blocks.
class NexusCounts {
 public:
  NexusCounts(const FeedForwardOptions& options, int64_t depth);
  /// Rows of a parameter in a block, where everything outside a Nexus layer's units takes `tokens`.
  double rows_of(std::string_view parameter, double tokens) const;
  /// Products of a block with such a layer: mixing of tokens into slots and of slots into tokens.
  std::optional<ActivationProducts> mixing(int64_t block, double tokens, double width) const;

 private:
  std::vector<bool> has_layer_;  ///< of each block
  double slots_per_unit_ = 0, num_units_ = 0;
};

}  // namespace shoal
