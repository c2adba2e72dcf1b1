#pragma once

#include <torch/types.h>

#include <vector>

#include "models/task.h"

// b sequences on this rank  S tokens
namespace shoal {

/// Metrics of token gates in an evaluation.
struct GateScores {
  /// True if a model has token gates.
  static bool apply_to(const torch::nn::Module& model);
  /// `gate_rate`: share of tokens that attended, over all gates, with anchors (unlike a training
  /// step's `gate_rate`) but without padding. `gate_recall`, if only some tokens have labels: share
  /// of labelled tokens that attended in at least one layer (`recall` of `shoal inspect --gates` is
  /// of one layer). `is_open_bS` as ModelOutput's, length_b as ModelInput's; an undefined label_bS
  /// gives the first sum alone.
  static std::vector<NamedSum> sums(const std::vector<torch::Tensor>& is_open_bS,
                                    const torch::Tensor& length_b, const torch::Tensor& label_bS);
  /// The metrics whose sums are given; without sums both, or only gate_rate unless `has_recall`.
  static std::vector<Metric> metrics(const std::vector<NamedSum>& totals, bool has_recall);
};

}  // namespace shoal
