#include "sparse/grow_rules/grow_rule.h"

namespace shoal {
namespace {

/// Drops the smallest weights and grows at random.
/// Source: Mocanu et al. 2018 (SET). Differs: the smallest weights of both signs together are
/// dropped, and by default fewer and fewer.
class Set : public ReplaceRule {
 public:
  using ReplaceRule::ReplaceRule;
  torch::Tensor grow_score(const CellState& cells) const override { return random_scores(cells); }
};

const Registration<GrowRule, Set> registered_set{"set",
                                                 "drops the smallest weights, grows at random"};

}  // namespace
}  // namespace shoal
