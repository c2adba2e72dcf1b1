#pragma once

#include <string>

#include "sparse/grow_rules/grow_rule.h"
#include "sparse/grow_rules/link_scores.h"

// C cells, here single weights of a matrix
namespace shoal {

/// Base of the grow rules `cht` and `cht_s`: grows missing links, weights that are off, by the
/// topology of the mask left after pruning. A link score is high if many paths of three links join
/// the output and the input through nodes with few other links (link_scores.h). `cht` grows the
/// highest scores; `cht_s` draws links by scores. Source: Zhang et al. 2024, 2025 (CHT, CHTs).
class TopologicalRule : public ReplaceRule {
 public:
  TopologicalRule(const ReplaceOptions& options, const Context& context, LinkScore score)
      : ReplaceRule(options, context), score_(score) {}

  /// Throws ConfigError unless the pattern is `unstructured`.
  void check(const Pattern& pattern, const std::string& layer) const override;
  bool reads_kept() const override { return true; }
  /// Returns the link scores of missing links, float64 [C]; 0 for existing links.
  torch::Tensor grow_score(const CellState& cells) const override;

 private:
  LinkScore score_;
};

/// Random scores by which `cht_s` draws links, for sampling weights w = weight_C: the k cells of
/// the highest scores are k draws without replacement, with probabilities proportional to w. A
/// score is w / e, with exponential variates e keyed by `stream` and `purpose`. Cells with w = 0
/// come last, in random order. Float64 [C]. Source: Efraimidis and Spirakis 2006, algorithm A-Res.
torch::Tensor race_scores(const torch::Tensor& weight_C, Stream stream, std::string_view purpose);

}  // namespace shoal
