#pragma once

#include <string>

#include "sparse/grow_rules/grow_rule.h"
#include "sparse/grow_rules/link_scores.h"

// C cells
namespace shoal {

/// Grows links by link_scores of the mask without the dropped cells. Cells are single weights:
/// patterns must be `unstructured`.
class TopologicalRule : public ReplaceRule {
 public:
  TopologicalRule(const ReplaceOptions& options, const Context& context, LinkScore score)
      : ReplaceRule(options, context), score_(score) {}

  void check(const Pattern& pattern, const std::string& layer) const override;
  bool reads_kept() const override { return true; }
  /// Link scores of the missing links, in float64.
  torch::Tensor grow_score(const CellState& cells) const override;

 private:
  LinkScore score_;
};

/// Scores whose highest k cells are k draws without replacement, with probabilities in proportion
/// to the weights w: w / e, with exponential variates e from the stream's draws for `purpose`.
/// Cells of weight 0 come last, with equal scores. Float64. Source: Efraimidis and Spirakis 2006,
/// algorithm A-Res.
torch::Tensor race_scores(const torch::Tensor& weight_C, Stream stream, std::string_view purpose);

}  // namespace shoal
