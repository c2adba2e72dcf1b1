#pragma once

#include <torch/types.h>

#include <vector>

#include "models/task.h"

// b sequences on this rank  S tokens
namespace shoal {

/// Evaluation metrics of token gates: how many tokens attend, and how many of the labelled ones.
struct GateScores {
  /// True if the model has token gates.
  static bool apply_to(const torch::nn::Module& model);
  /// `gate_rate`: share of tokens that attend, over all gates, with anchors and without padding
  /// (the `gate_rate` of a training step excludes anchors). `gate_recall`: share of labelled tokens
  /// that attend in at least one layer, for data that label some tokens only (`recall` of `shoal
  /// inspect --gates` is per layer). is_open_bS as in ModelOutput, length_b as in ModelInput;
  /// without label_bS only gate_rate is returned.
  static std::vector<NamedSum> sums(const std::vector<torch::Tensor>& is_open_bS,
                                    const torch::Tensor& length_b, const torch::Tensor& label_bS);
  /// The metrics whose sums are given; without sums both, or only gate_rate unless `has_recall`.
  static std::vector<Metric> metrics(const std::vector<NamedSum>& totals, bool has_recall);
};

}  // namespace shoal
