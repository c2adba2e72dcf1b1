#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "moe/moe_layer.h"
#include "tests/support/gradient_check.h"
#include "tests/support/moe_layer_fixture.h"

// B samples  R rows per sample  D width
namespace shoal {
namespace {

using testing::layer_options;
using testing::self_grid;
using testing::some_numbers;

constexpr const char* kLayerPath = "blocks.1.moe_c";
constexpr int64_t kSamples = 4, kRows = 5, kWidth = 6;

StepContext training_step() {
  StepContext step;
  step.seed = 3;
  step.training = true;
  step.sample_b = torch::arange(kSamples);
  step.samples_per_group = 2;
  step.samples_in_step = step.samples_in_micro = kSamples;
  return step;
}

/// What a module makes of fixed tokens, and the gradients of fixed numbers times it.
struct Outcome {
  torch::Tensor y_BRD, x_grad;
  std::map<std::string, torch::Tensor> grads;
};

Outcome outcome(const torch::nn::Module& module, const std::string& path,
                const std::function<torch::Tensor(const torch::Tensor&)>& forward) {
  const std::vector<Parameter> parameters = parameters_of(module, path);
  initialise(parameters, 9);  // by name: the same in the whole and in its parts
  torch::Tensor x_BRD = some_numbers({kSamples, kRows, kWidth}, 1).set_requires_grad(true);
  Outcome result;
  const torch::Tensor y_BRD = forward(x_BRD);
  (y_BRD * some_numbers(y_BRD.sizes(), 2)).sum().backward();
  result.y_BRD = y_BRD.detach();
  result.x_grad = x_BRD.grad();
  for (const Parameter& parameter : parameters) {
    result.grads[parameter.name] = parameter.tensor.grad();
  }
  return result;
}

double difference_of(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

class SharedInMoeLayer : public ::testing::TestWithParam<bool> {
 protected:
  static Outcome layer_with(const SharedExpert::Options& shared) {
    RankGrid grid = self_grid();
    // Two of ten tokens of a group find a place in each of four units.
    MoeOptions options =
        layer_options({"top_k", ScoreOptions{1, RouterNoise::kNone, {}}},
                      {CapacityMode::kCapped, 0.8, 0, 1, CapacityOrder::kPosition}, {});
    options.shared = shared;
    MoeLayer layer(options, kWidth, kLayerPath, {&grid, torch::kFloat64});
    return outcome(layer, kLayerPath, [&](const torch::Tensor& x_BRD) {
      return layer.forward(x_BRD, training_step()).y_BRD;
    });
  }

  static Outcome shared_alone(const SharedExpert::Options& shared) {
    const SharedExpert expert(shared, kWidth, torch::kFloat64);
    return outcome(expert, std::string(kLayerPath) + ".shared", [&](const torch::Tensor& x_BRD) {
      return expert.forward(x_BRD.flatten(0, 1)).view(x_BRD.sizes());
    });
  }
};

TEST_P(SharedInMoeLayer, IsAddedToWhatTheRoutedExpertsSay) {
  const SharedExpert::Options shared{2, 3, GetParam(), Activation::kGelu, true};
  const Outcome whole = layer_with(shared), routed = layer_with({}), alone = shared_alone(shared);
  EXPECT_LT(difference_of(whole.y_BRD, routed.y_BRD + alone.y_BRD), 1e-14);
  EXPECT_LT(difference_of(whole.x_grad, routed.x_grad + alone.x_grad), 1e-13);
  EXPECT_EQ(whole.grads.size(), routed.grads.size() + alone.grads.size());
  for (const Outcome* part : {&routed, &alone}) {
    for (const auto& [name, grad] : part->grads) {
      EXPECT_GT(grad.abs().max().item<double>(), 1e-3) << name;
      EXPECT_LT(difference_of(whole.grads.at(name), grad), 1e-13) << name;
    }
  }
}

TEST_P(SharedInMoeLayer, HasFourTimesTheWidthUnlessItIsGiven) {
  SharedExpert::Options shared{2, 4 * kWidth, GetParam(), Activation::kGelu, true};
  const Outcome given = shared_alone(shared);
  shared.hidden.reset();
  const Outcome automatic = shared_alone(shared);
  EXPECT_TRUE(torch::equal(given.y_BRD, automatic.y_BRD));
}

TEST_P(SharedInMoeLayer, IsAllThatATokenGetsWhoseChoicesWereDropped) {
  const SharedExpert::Options shared{2, 3, GetParam(), Activation::kGelu, true};
  const Outcome whole = layer_with(shared), routed = layer_with({}), alone = shared_alone(shared);
  const torch::Tensor is_dropped = (routed.y_BRD == 0).all(2);
  ASSERT_GT(is_dropped.sum().item<int64_t>(), 0);
  ASSERT_LT(is_dropped.sum().item<int64_t>(), kSamples * kRows);
  const auto of_dropped = [&](const torch::Tensor& all_BRD) {
    return all_BRD.flatten(0, 1).index_select(0, is_dropped.flatten().nonzero().flatten());
  };
  EXPECT_GT(of_dropped(alone.y_BRD).abs().min().item<double>(), 0.0);
  EXPECT_EQ(difference_of(of_dropped(whole.y_BRD), of_dropped(alone.y_BRD)), 0.0);
  EXPECT_LT(difference_of(of_dropped(whole.x_grad), of_dropped(alone.x_grad)), 1e-14);
}

INSTANTIATE_TEST_SUITE_P(, SharedInMoeLayer, ::testing::Bool(),
                         [](const auto& gated) { return gated.param ? "Gated" : "Plain"; });

}  // namespace
}  // namespace shoal
