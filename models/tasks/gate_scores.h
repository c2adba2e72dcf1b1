#pragma once

#include <torch/types.h>

#include <vector>

#include "models/task.h"

// b sequences on this rank  S tokens
namespace shoal {

/// Evaluation metrics of token gates, which select the tokens that attend (paper: HSPMN v2.1).
struct GateScores {
  /// True if the model has token gates.
  static bool apply_to(const torch::nn::Module& model);
  /// Returns this batch's sums, without padding. `gate_rate`: share of tokens that attend, over all
  /// gates. Unlike in training, anchors (one in gate.anchor_every tokens, always attend) count too.
  /// `gate_recall`, only with label_bS: share of labelled tokens that attend in at least one layer,
  /// for data that label some tokens only (`recall` of `shoal inspect --gates` is per layer).
  /// is_open_bS: one per gate, bool, true where a token attends. length_b: tokens of each sequence,
  /// int64 on the host; undefined: no padding. label_bS: int64; kNoLabel (-100): no label.
  static std::vector<NamedSum> sums(const std::vector<torch::Tensor>& is_open_bS,
                                    const torch::Tensor& length_b, const torch::Tensor& label_bS);
  /// `totals`: sums() of all batches and ranks. Returns means: `gate_rate` and, if `has_recall`,
  /// `gate_recall`; NaN where a sum is missing.
  static std::vector<Metric> metrics(const std::vector<NamedSum>& totals, bool has_recall);
};

}  // namespace shoal
