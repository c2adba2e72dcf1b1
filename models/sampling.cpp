#include "models/sampling.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/base/error.h"

// V vocabulary
namespace shoal {
namespace {

/// Token ids ranked by logit on demand: the first `num_sorted` are sorted.
class Ranking {
 public:
  explicit Ranking(std::span<const double> logit_V) : logit_V_(logit_V), ids_(logit_V.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
  }
  /// The id at a rank, from 0; sorts as far as needed, at least 8 times as far each time.
  int64_t operator[](size_t rank) {
    if (rank >= num_sorted_) {
      const size_t wanted = std::min(ids_.size(), std::max<size_t>(rank + 1, 8 * num_sorted_ + 64));
      const auto begin = ids_.begin() + static_cast<std::ptrdiff_t>(num_sorted_);
      std::partial_sort(begin, ids_.begin() + static_cast<std::ptrdiff_t>(wanted), ids_.end(),
                        [this](int64_t a, int64_t b) {
                          const double x = logit(a), y = logit(b);
                          return x > y || (x == y && a < b);
                        });
      num_sorted_ = wanted;
    }
    return ids_[rank];
  }
  double logit(int64_t id) const { return logit_V_[static_cast<size_t>(id)]; }

 private:
  std::span<const double> logit_V_;
  std::vector<int64_t> ids_;
  size_t num_sorted_ = 0;
};

/// The first index at which the running sum of `weights` exceeds `share` of the total.
size_t index_at(const std::vector<double>& weights, double share) {
  const double target = share * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0.0;
  size_t last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0.0) continue;
    last = i;
    sum += weights[i];
    if (sum > target) break;
  }
  return last;
}

}  // namespace

int64_t choose_token(std::span<const double> logit_V, const Sampling& sampling, double uniform) {
  TORCH_CHECK(!logit_V.empty(), "no logits to choose a token from");
  const auto best = std::ranges::max_element(logit_V);  // of equal ones the first
  const double highest = *best;
  const bool has_nan = std::ranges::any_of(logit_V, [](double logit) { return std::isnan(logit); });
  if (has_nan || !std::isfinite(highest)) {
    throw Error(ExitCode::kNumeric, "the model's logits are not finite",
                "`shoal inspect CKPT --tensors` shows which weights are not; take an earlier "
                "checkpoint");
  }
  if (sampling.temperature == 0.0) return best - logit_V.begin();
  const auto weight_of = [&](double logit) {
    return std::exp((logit - highest) / sampling.temperature);
  };
  std::vector<double> weights;
  const auto vocabulary = std::ssize(logit_V);
  const bool takes_all = sampling.top_k == 0 || sampling.top_k >= vocabulary;
  if (takes_all && sampling.top_p >= 1.0) {
    for (const double logit : logit_V) weights.push_back(weight_of(logit));
    return static_cast<int64_t>(index_at(weights, uniform));
  }
  Ranking ranking(logit_V);
  const auto count = static_cast<size_t>(takes_all ? vocabulary : sampling.top_k);
  double total = 0.0;
  if (takes_all) {
    for (const double logit : logit_V) total += weight_of(logit);
  } else {
    for (size_t i = 0; i < count; ++i) total += weight_of(ranking.logit(ranking[i]));
  }
  double sum = 0.0;
  for (size_t i = 0; i < count && sum < sampling.top_p * total; ++i) {
    weights.push_back(weight_of(ranking.logit(ranking[i])));
    sum += weights.back();
  }
  return ranking[index_at(weights, uniform)];
}

}  // namespace shoal
