#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace shoal::testing {

/// The MoE layer written down as plainly as possible: loops over tokens and choices, full sorts, no
/// code of the product. What the product's tests compare against.
struct ReferenceMoe {
  enum class Order { kSlotMajor, kBatchPriority, kProbability, kPosition };
  enum class Normalise { kNone, kTopkSoftmax, kSum };
  enum class Score { kSoftmax, kSigmoid, kSqrtSoftplus };

  // All float64; gradients are autograd's.
  torch::Tensor router_DU;
  torch::Tensor fc1_weight, fc1_bias, fc2_weight, fc2_bias;  ///< stacked over all U experts, GELU
  int64_t k = 2;
  Score score = Score::kSoftmax;
  /// The units of each token, best first, any number, in place of the k highest noisy logits'.
  std::vector<std::vector<int64_t>> choices = {};
  bool has_even_weights = false;  ///< 1 / k, whatever the scores
  Normalise normalise = Normalise::kNone;
  bool renorm_after_drop = false;
  double scale = 1.0;
  int64_t drop_percent = 0;      ///< importance-score routing: share of a group that is masked
  int64_t capacity_percent = 0;  ///< capacity factor; 0: dropless
  int64_t capacity_min = 0;
  int64_t capacity_align = 1;
  Order order = Order::kSlotMajor;

  struct Result {
    torch::Tensor y_TD;
    std::vector<std::vector<int64_t>> units;  ///< of each token, best first
    std::vector<std::vector<bool>> kept;      ///< whether the choice survived
    torch::Tensor logits_TU, noisy_TU;
  };
  /// Groups are runs of `tokens_per_group` tokens, the last may be short.
  Result run(const torch::Tensor& x_TD, const torch::Tensor& noise_TU,
             int64_t tokens_per_group) const;
};

/// Importance and load losses of one scope instance by loops over doubles.
double reference_importance_loss(const torch::Tensor& logits_TU);
/// noise_std_TU: of each draw.
double reference_load_loss(const torch::Tensor& logits_TU, const torch::Tensor& noisy_TU, int64_t k,
                           const torch::Tensor& noise_std_TU);
double reference_load_loss(const torch::Tensor& logits_TU, const torch::Tensor& noisy_TU, int64_t k,
                           double noise_std);

}  // namespace shoal::testing
