#include <tuple>

#include "runtime/optim/optimizer.h"

namespace shoal {
namespace {

/// Steps of one length by the sign of averaged gradients. Its state: the averages, and how many
/// steps each weight has taken.
class SignedOptimizer final : public Optimizer {
 public:
  struct Options : OptimizerOptions {
    double momentum = 0.9;

    static constexpr auto fields() {
      return std::tuple_cat(OptimizerOptions::fields(),
                            std::tuple{field("momentum", &Options::momentum, "of the average",
                                             in_range(0, below(1)), on_resume(OnResume::kWarned))});
    }
  };
  SignedOptimizer(const Options& options, const Context& context)
      : Optimizer(options, context), momentum_(options.momentum) {
    add_state("average");
    add_state("age");
  }
  std::vector<std::string> step_count_kinds() const override { return {"age"}; }

 protected:
  void update(const std::vector<Batch>& batches, double learning_rate) override {
    for (const Batch& batch : batches) {
      const double rate = learning_rate * batch.lr_scale;
      for (size_t i = 0; i < batch.weights.size(); ++i) {
        batch.states[0][i].mul_(momentum_).add_(batch.gradients[i]);
        batch.states[1][i].add_(1);
        batch.weights[i].mul_(1.0 - rate * batch.weight_decay);
        batch.weights[i].sub_(batch.states[0][i].sign() * rate);
      }
    }
  }

 private:
  double momentum_;
};

const Registration<Optimizer, SignedOptimizer> registered_signed_optimizer{"signed",
                                                                           "for this test"};

}  // namespace
}  // namespace shoal
