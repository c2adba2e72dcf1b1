#include "sparse/grow_rules/grow_rule.h"

namespace shoal {
namespace {

/// SET: drops the smallest weights and grows at random.
/// Source: Mocanu et al. 2018. Differs: positive and negative weights are ranked together by
/// magnitude, and the replaced share falls over time by default.
class Set : public ReplaceRule {
 public:
  using ReplaceRule::ReplaceRule;
  torch::Tensor grow_score(const CellState& cells) const override { return random_scores(cells); }
};

const Registration<GrowRule, Set> registered_set{"set",
                                                 "drops the smallest weights, grows at random"};

}  // namespace
}  // namespace shoal
