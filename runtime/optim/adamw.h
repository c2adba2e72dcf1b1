#pragma once

#include "runtime/optim/optimizer.h"

namespace shoal {

/// Adam with decoupled weight decay. Source: Loshchilov and Hutter 2019, algorithm 2:
/// w -= lr·wd·w; m = β1 m + (1-β1) g; v = β2 v + (1-β2) g²;
/// w -= lr·(m/(1-β1^t)) / (sqrt(v/(1-β2^t)) + eps).
class AdamW : public Optimizer {
 public:
  using Options = AdamOptions;
  AdamW(const Options& options, const Context& context);

 protected:
  void update(const std::vector<Batch>& batches, double learning_rate) override;

 private:
  Options options_;
};

}  // namespace shoal
