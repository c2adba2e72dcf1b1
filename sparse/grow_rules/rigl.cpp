#include "sparse/grow_rules/grow_rule.h"

namespace shoal {
namespace {

/// RigL: drops the smallest weights and grows where the gradient is largest; the optimizer skips
/// steps that update masks. Source: Evci et al. 2020, algorithm 1.
class RigL : public ReplaceRule {
 public:
  using ReplaceRule::ReplaceRule;
  bool needs_gradient() const override { return true; }
  bool replaces_step() const override { return true; }
  torch::Tensor grow_score(const CellState& cells) const override { return cells.gradient_C.abs(); }
};

const Registration<GrowRule, RigL> registered_rigl{
    "rigl", "drops the smallest weights, grows where the gradient is largest"};

}  // namespace
}  // namespace shoal
