#pragma once

#include <tuple>

#include "runtime/optim/optimizer.h"

namespace shoal {

/// Layer-wise adaptive Adam: the step of each matrix has a length in proportion to the matrix.
///
/// m = β1 m + (1-β1) g; v = β2 v + (1-β2) g²;
/// u = (m/(1-β1^t)) / (sqrt(v)/sqrt(1-β2^t) + eps) + wd·w;
/// w -= lr·r·u with the trust ratio r = |w|/|u|, 1 where either is 0.
///
/// One ratio for each matrix of a stack (each expert). Parameters that do not decay (vectors,
/// `no_decay`, weight_decay 0) have ratio 1 unless `always_adapt`.
/// Source: You et al. 2020, algorithm 2, without its bound of the norm of w.
class Lamb : public Optimizer {
 public:
  struct Options : AdamOptions {
    bool trust_clip = false;
    bool always_adapt = false;

    Options() { eps = 1e-6; }
    static constexpr auto fields() {
      return std::tuple_cat(
          AdamOptions::fields(),
          std::tuple{field("trust_clip", &Options::trust_clip, "trust ratios stay at most 1"),
                     field("always_adapt", &Options::always_adapt,
                           "a trust ratio also for parameters that do not decay")});
    }
  };
  Lamb(const Options& options, const Context& context);

 protected:
  void update(const Batch& batch, double learning_rate) override;

 private:
  struct Numbers;
  /// In two passes, as the norms of a matrix are sums over the ranks that hold pieces of it.
  void update_pieces(const Batch& batch, const Numbers& numbers);

  Options options_;
};

}  // namespace shoal
