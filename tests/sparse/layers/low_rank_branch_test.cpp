#include "sparse/layers/low_rank_branch.h"

#include <gtest/gtest.h>

#include "runtime/module/linear.h"
#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::gradient_error;
using testing::some_numbers;

/// Linear 5 -> 3 with a branch of rank 2, in float64.
struct Layer {
  Layer() {
    initialise(parameters_of(*linear), 1);
    EXPECT_TRUE(linear->set_branch(linear->weight, "low_rank", branch));
    initialise(parameters_of(*branch), 2);
    const torch::NoGradGuard no_grad;
    branch->gate_weight.copy_(some_numbers({5}, 3));
    branch->gate_bias.fill_(0.3);
  }

  Linear linear{5, 3, torch::kFloat64};
  std::shared_ptr<LowRankBranch> branch =
      std::make_shared<LowRankBranch>(3, 5, 2, torch::TensorOptions(torch::kFloat64));
};

TEST(LowRankBranch, IsWeighedByTheGateOfEachToken) {
  const Layer layer;
  const torch::Tensor x = some_numbers({4, 5}, 4), y = layer.linear->forward(x);
  for (int64_t t = 0; t < 4; ++t) {
    const torch::Tensor gate = torch::sigmoid(layer.branch->gate_weight.dot(x[t]) + 0.3);
    const torch::Tensor sparse = layer.linear->weight.mv(x[t]);
    const torch::Tensor low_rank = layer.branch->u.mv(layer.branch->v.mv(x[t]));
    const torch::Tensor expected = (1 - gate) * sparse + gate * low_rank + layer.linear->bias;
    EXPECT_TRUE(y[t].allclose(expected, 1e-12, 1e-12)) << t;
  }
}

TEST(LowRankBranch, IsOfALayerThatFusedKernelsLeaveAlone) {
  EXPECT_FALSE(Layer().linear->dense().has_value());
  EXPECT_TRUE(Linear(5, 3, torch::kFloat64)->dense().has_value());
}

TEST(LowRankBranch, HasTheLayersNameAndItsOwn) {
  const Layer layer;
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters_of(*layer.linear)) names.push_back(parameter.name);
  EXPECT_EQ(names, (std::vector<std::string>{"weight", "bias", "low_rank.u", "low_rank.v",
                                             "low_rank.gate_weight", "low_rank.gate_bias"}));
}

TEST(LowRankBranch, HasTheGradientsOfFiniteDifferences) {
  const Layer layer;
  const torch::Tensor x = some_numbers({4, 5}, 4).requires_grad_();
  std::vector<torch::Tensor> inputs{x};
  for (const Parameter& parameter : parameters_of(*layer.linear))
    inputs.push_back(parameter.tensor);
  EXPECT_LT(gradient_error([&] { return layer.linear->forward(x); }, inputs), 1e-6);
}

}  // namespace
}  // namespace shoal
