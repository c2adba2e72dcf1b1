#include "runtime/base/error.h"
#include "sparse/grow_rules/grow_rule.h"

namespace shoal {
namespace {

/// Learns the first masks: trains all cells, weighted by a softmax of falling temperature, then
/// keeps the cells with the highest scores. Masks do not change afterwards.
/// Source: Tyagi et al. 2025 (DynaDiag). Differs: see SoftCells.
class SoftTopK : public GrowRule {
 public:
  struct Options {
    double temperature = 5.0;
    double last_temperature = 0.05;
    double lr = 1e-2;
    double threshold = 0.05;
    Duration check_every = Duration::steps(100);
    Duration until = Duration::percent(30);

    static constexpr auto fields() {
      return std::tuple{
          field("temperature", &Options::temperature, "temperature of the softmax at the start",
                above(0.0)),
          field("last_temperature", &Options::last_temperature,
                "final temperature, reached on a cosine schedule at `until`", above(0.0)),
          field("lr", &Options::lr, "learning rate of the scores, constant; Adam",
                in_range(above(0.0), 10.0)),
          field("threshold", &Options::threshold,
                "a layer selects its best cells once cells_distance is below this; experts only at "
                "`until`",
                in_range(0.0, 2.0)),
          field("check_every", &Options::check_every, "interval between threshold checks", above(0),
                kCountedUnits),
          field("until", &Options::until, "every layer's cells are chosen from here on", above(0),
                kPlaceUnits)};
    }
    void validate(Problems& problems) const {
      if (last_temperature > temperature) {
        problems.add("last_temperature", "must not be above temperature");
      }
    }
  };
  SoftTopK(const Options& options, const Context& context)
      : choice_{options.temperature,
                options.last_temperature,
                options.lr,
                options.threshold,
                steps_of("check_every", options.check_every, context.scale),
                steps_of("until", options.until, context.scale)} {}

  bool is_due(int64_t /*step*/) const override { return false; }
  void check(const Pattern& pattern, const std::string& layer) const override {
    if (pattern.can_change() && pattern.num_cells() < pattern.rows() * pattern.columns()) return;
    throw ConfigError(layer +
                      ": soft_top_k chooses among cells of several weights, as the patterns "
                      "diagonal and block have them; use one of these, or the rule rigl");
  }
  torch::Tensor grow_score(const CellState& cells) const override {
    return torch::zeros_like(cells.weight_C);
  }
  CellCounts counts(int64_t /*step*/, const CellTotals& /*cells*/) const override { return {}; }
  const SoftChoice* soft_choice() const override { return &choice_; }

 private:
  SoftChoice choice_;
};

const Registration<GrowRule, SoftTopK> registered_soft_top_k{
    "soft_top_k", "trains all cells with ever sharper weights, and keeps the best (DynaDiag)"};

}  // namespace
}  // namespace shoal
