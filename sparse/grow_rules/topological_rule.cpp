#include "sparse/grow_rules/topological_rule.h"

#include <ATen/ops/empty_like.h>

#include "runtime/base/error.h"
#include "runtime/random/random.h"

namespace shoal {

void TopologicalRule::check(const Pattern& pattern, const std::string& layer) const {
  if (pattern.takes_any_weights()) return;
  throw ConfigError(layer +
                    ": cht and cht_s grow single weights by the topology of the mask, which this "
                    "pattern does not let them; set pattern: {name: unstructured}");
}

torch::Tensor TopologicalRule::grow_score(const CellState& cells) const {
  TORCH_CHECK(cells.is_kept_C.defined(), "topological rule: no kept cells");
  return link_scores(cells.is_kept_C.view({cells.rows, cells.columns}), score_).view({-1});
}

torch::Tensor race_scores(const torch::Tensor& weight_C, Stream stream, std::string_view purpose) {
  stream.layer ^= hash_name(purpose);
  const torch::Tensor uniform_C =
      at::empty_like(weight_C, weight_C.options().dtype(torch::kFloat64));
  fill_uniform(uniform_C, stream);
  // Below all other w / e, so that cells of weight 0 are drawn last.
  constexpr double kLast = 1e-300;
  const torch::Tensor race_C = weight_C / uniform_C.log().neg_();
  return race_C.where(weight_C > 0, uniform_C * kLast);
}

}  // namespace shoal
