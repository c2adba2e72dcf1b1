#pragma once

#include "runtime/optim/optimizer.h"

namespace shoal {

/// Adam with decoupled weight decay. Source: Loshchilov and Hutter 2019, algorithm 2:
/// w -= lr·wd·w; m = β1 m + (1-β1) g; v = β2 v + (1-β2) g²;
/// w -= lr·(m/(1-β1^t)) / (sqrt(v/(1-β2^t)) + eps).
///
/// t is the number of the update. With `entry_steps` each weight has a t of its own, a third state
/// "t" beside "m" and "v". When sparse training regrows a weight, it zeroes all three, so that the
/// weight's first step is lr. With a common t that step would be up to (1-β1)/sqrt(1-β2) lr, 3.16
/// lr by default. While a weight is masked out its t grows too, but regrowth resets it.
class AdamW : public Optimizer {
 public:
  struct Options : AdamOptions {
    bool entry_steps = false;

    static constexpr auto fields() {
      return std::tuple_cat(
          AdamOptions::fields(),
          std::tuple{field("entry_steps", &Options::entry_steps,
                           "count the updates of each weight separately, for the bias correction "
                           "of regrown weights; needs a third state, and is slower")});
    }
  };
  AdamW(const Options& options, const Context& context);
  std::vector<std::string> step_count_kinds() const override {
    return options_.entry_steps ? std::vector<std::string>{"t"} : std::vector<std::string>{};
  }

 protected:
  void update(const std::vector<Batch>& batches, double learning_rate) override;

 private:
  void update_fused(const Batch& batch, double learning_rate) const;
  void update_by_age(const Batch& batch, double learning_rate) const;

  Options options_;
};

}  // namespace shoal
