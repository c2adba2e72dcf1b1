#include "sparse/grow_rules/grow_rule.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/random/random.h"

namespace shoal {

double SoftChoice::temperature(int64_t step) const {
  const double done = std::min(1.0, static_cast<double>(step) / static_cast<double>(until));
  const double share = (1.0 + std::cos(std::numbers::pi * done)) / 2.0;
  return last_temperature + (first_temperature - last_temperature) * share;
}

double ReplaceRule::fraction(int64_t step) const {
  if (step >= until_) return 0.0;
  if (options_.decay == FractionDecay::kConstant) return options_.fraction;
  return options_.fraction / 2.0 * (1.0 + std::cos(std::numbers::pi * progress(step)));
}

CellCounts ReplaceRule::counts(int64_t step, const CellTotals& cells) const {
  const auto count = static_cast<int64_t>(fraction(step) * static_cast<double>(cells.on));
  return {count, count};
}

torch::Tensor random_scores(const CellState& cells) {
  const torch::Tensor score_C = at::empty_like(cells.weight_C);
  fill_uniform(score_C, cells.stream);
  return score_C;
}

}  // namespace shoal
