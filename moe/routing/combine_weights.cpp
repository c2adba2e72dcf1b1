#include "moe/routing/combine_weights.h"

#include <string>

#include "runtime/recipe/enum_name.h"

namespace shoal {

torch::Tensor combine_weights(const torch::Tensor& score_TU, const torch::Tensor& logits_TU,
                              const torch::Tensor& unit_TK, Normalise normalise) {
  if (normalise == Normalise::kTopkSoftmax) return logits_TU.gather(1, unit_TK).softmax(1);
  const torch::Tensor score_TK = score_TU.gather(1, unit_TK);
  if (normalise == Normalise::kNone) return score_TK;
  return score_TK / (score_TK.sum(1, /*keepdim=*/true) + kLeastScoreSum);
}

void check_combine_weights(const CombineWeights& weights, int64_t k, Problems& problems) {
  if (k != 1) return;
  const std::string reason = " makes every weight 1 when k is 1, and the router learns nothing; ";
  if (weights.normalise != Normalise::kNone) {
    problems.add("weights.normalise",
                 std::string(enum_name(weights.normalise)) + reason + "use none");
  }
  if (weights.renorm_after_drop) {
    problems.add("weights.renorm_after_drop", "true" + reason + "use false");
  }
}

}  // namespace shoal
