#pragma once

#include <tuple>

#include "runtime/optim/optimizer.h"

namespace shoal {

/// Gradient descent with momentum μ, as torch.optim.SGD: g += wd·w; m = μ·m + g; w -= lr·m, or with
/// `nesterov` w -= lr·(g + μ·m).
class Sgd : public Optimizer {
 public:
  struct Options : OptimizerOptions {
    double momentum = 0.0;
    bool nesterov = false;

    static constexpr auto fields() {
      return std::tuple_cat(
          OptimizerOptions::fields(),
          std::tuple{field("momentum", &Options::momentum, "momentum coefficient",
                           in_range(0.0, below(1.0))),
                     field("nesterov", &Options::nesterov, "use Nesterov momentum")});
    }
    void validate(Problems& problems) const;
  };
  Sgd(const Options& options, const Context& context);

 protected:
  void update(const std::vector<Batch>& batches, double learning_rate) override;

 private:
  Options options_;
};

}  // namespace shoal
