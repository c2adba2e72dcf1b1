#include "sparse/grow_rules/grow_rule.h"

namespace shoal {
namespace {

/// Never changes the first masks.
class Static : public GrowRule {
 public:
  using Options = NoOptions;
  explicit Static(const Options& /*options*/) {}
  bool is_due(int64_t /*step*/) const override { return false; }
  torch::Tensor grow_score(const CellState& cells) const override {
    return torch::zeros_like(cells.weight_C);
  }
  CellCounts counts(int64_t /*step*/, const CellTotals& /*cells*/) const override { return {}; }
};

const Registration<GrowRule, Static> registered_static{"static", "keeps the initial masks"};

}  // namespace
}  // namespace shoal
