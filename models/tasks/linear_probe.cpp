#include <vector>

#include "models/tasks/classify.h"

namespace shoal {
namespace {

constexpr double kHeadStdDev = 0.01;

/// Classification by a linear head on a backbone that stays as `model.init_from` gives it: it runs
/// as in an evaluation, without noise and drops, and its weights are frozen. The head begins with
/// N(0, 0.01).
/// Source: Chen, Xie and He 2021, section 4 (linear probing).
class LinearProbe : public Classify {
 public:
  LinearProbe(const Options& options, const Context& context)
      : Classify(options, context, {"linear_probe", Init::normal(kHeadStdDev)}) {
    for (torch::Tensor& parameter : backbone()->parameters()) parameter.set_requires_grad(false);
  }

  std::vector<std::shared_ptr<torch::nn::Module>> untrained() const override {
    return {backbone()};
  }

 protected:
  ModelOutput features_of(const ModelInput& input, const StepContext& step) override {
    const torch::NoGradGuard no_grad;
    StepContext frozen = step;
    frozen.training = false;
    return backbone()->forward(input, frozen);
  }
};

const Registration<Task, LinearProbe> registered_linear_probe{
    "linear_probe", "classification of a frozen backbone's features, to judge a pretraining"};

}  // namespace
}  // namespace shoal
