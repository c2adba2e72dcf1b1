#pragma once

#include <array>
#include <tuple>

#include "runtime/optim/optimizer.h"

namespace shoal {

/// Layer-wise adaptive Adam: the step of each matrix is proportional to the matrix's norm.
///
/// m = β1 m + (1-β1) g; v = β2 v + (1-β2) g²;
/// u = (m/(1-β1^t)) / (sqrt(v)/sqrt(1-β2^t) + eps) + wd·w;
/// w -= lr·r·u with the trust ratio r = |w|/|u|, 1 where either is 0.
///
/// t is the number of the update. Each matrix of a stack (each expert) has a ratio of its own.
/// Parameters without decay (vectors, `no_decay`, weight_decay 0) have ratio 1 unless
/// `always_adapt`. With sharded optimizer state the squared norms are first summed over the ranks
/// that hold pieces of the matrix. Source: You et al. 2020, algorithm 2, without the bound on |w|.
class Lamb : public Optimizer {
 public:
  struct Options : AdamOptions {
    bool trust_clip = false;
    bool always_adapt = false;

    Options() { eps = 1e-6; }
    static constexpr auto fields() {
      return std::tuple_cat(
          AdamOptions::fields(),
          std::tuple{field("trust_clip", &Options::trust_clip, "limit trust ratios to 1"),
                     field("always_adapt", &Options::always_adapt,
                           "use a trust ratio also for parameters that do not decay")});
    }
  };
  Lamb(const Options& options, const Context& context);

 protected:
  void update(const std::vector<Batch>& batches, double learning_rate) override;

 private:
  bool adapts(const Batch& batch) const {
    return batch.weight_decay != 0.0 || options_.always_adapt;
  }
  /// The constants of a batch's update, in the order of LambFactors' fields.
  std::array<double, 8> factors(const Batch& batch) const;
  /// Updates averages, trust ratios and weights at once, for whole matrices.
  void update_whole(const Batch& batch, double rate) const;
  /// Updates averages; returns squared norms [P, 2] of weights and updates of this rank's P pieces.
  torch::Tensor measure(const Batch& batch) const;
  /// Updates the weights, given the squared norms summed over ranks.
  void apply(const Batch& batch, double rate, const torch::Tensor& square_P2) const;

  Options options_;
};

}  // namespace shoal
