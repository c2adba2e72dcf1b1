#pragma once

#include <string>

#include "sparse/grow_rules/grow_rule.h"
#include "sparse/grow_rules/link_scores.h"

// C cells, here single weights of a matrix
namespace shoal {

/// Base of the grow rules `cht` and `cht_s`: grows missing links, weights that are off, by
/// link_scores() of the mask that is left after pruning. The pattern must be `unstructured`.
class TopologicalRule : public ReplaceRule {
 public:
  TopologicalRule(const ReplaceOptions& options, const Context& context, LinkScore score)
      : ReplaceRule(options, context), score_(score) {}

  void check(const Pattern& pattern, const std::string& layer) const override;
  /// True: an update has to know the links that are left after pruning.
  bool reads_kept() const override { return true; }
  /// Link scores of the missing links, in float64: the links with the highest scores grow.
  torch::Tensor grow_score(const CellState& cells) const override;

 private:
  LinkScore score_;
};

/// Scores by which `cht_s` draws links at random. Weighted sampling without replacement: the k
/// highest are k draws with probabilities proportional to the weights w. A score is w / e, with
/// exponential variates e keyed by `stream` and `purpose`. Cells of weight 0 come last, in random
/// order. Float64. Source: Efraimidis and Spirakis 2006, algorithm A-Res.
torch::Tensor race_scores(const torch::Tensor& weight_C, Stream stream, std::string_view purpose);

}  // namespace shoal
