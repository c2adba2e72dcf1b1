#include <vector>

#include "models/tasks/classify.h"

namespace shoal {
namespace {

constexpr double kHeadStdDev = 0.01;

/// Linear probing: classification by a linear head on a frozen backbone from `model.init_from`,
/// which runs as in an evaluation, without noise or dropped tokens. The head is initialised from
/// N(0, 0.01). Source: Chen, Xie and He 2021, section 4 (linear probing).
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
    "linear_probe", "classification of a frozen backbone's features, to evaluate pretraining"};

}  // namespace
}  // namespace shoal
