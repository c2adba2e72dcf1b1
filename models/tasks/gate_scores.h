#pragma once

#include <torch/types.h>

#include <vector>

#include "models/task.h"

// b sequences on this rank  S tokens
namespace shoal {

/// What an evaluation reports of token gates.
struct GateScores {
  /// Whether a model has any.
  static bool apply_to(const torch::nn::Module& model);
  /// `gate_rate`: tokens that attended, of all gates' tokens, anchors included (a training step's
  /// `gate_rate` is of the tokens beside the anchors) and padding left out; `gate_recall`, where
  /// only some tokens have labels: labelled tokens that attended in at least one layer, of all
  /// labelled ones (`recall` of `shoal inspect --gates` is of one layer). `is_open_bS` as
  /// ModelOutput's, length_b as ModelInput's; an undefined label_bS gives the first alone.
  static std::vector<NamedSum> sums(const std::vector<torch::Tensor>& is_open_bS,
                                    const torch::Tensor& length_b, const torch::Tensor& label_bS);
  /// Those that were summed; without any sums both, or the first unless `has_recall`.
  static std::vector<Metric> metrics(const std::vector<NamedSum>& totals, bool has_recall);
};

}  // namespace shoal
