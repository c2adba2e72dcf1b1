#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/moe/routers/router_fixture.h"
#include "tests/support/moe_layer_fixture.h"

// T tokens  U units  K choices
namespace shoal {
namespace {

using testing::layer_options;
using testing::router_choice;
using testing::router_of;
using testing::some_numbers;
using testing::step_of;

constexpr const char* kRouters[] = {
    "{name: top_k, k: 2}",
    "{name: top_k, k: 2, bias: {rate: 1e-3}, weights: {normalise: sum}}",
    "{name: top_k, k: 2, groups: {count: 2, keep: 1}, weights: {normalise: topk_softmax}}",
    "{name: importance_score, k: 2, drop: 0.5}",
    "{name: noisy_top_k, k: 2}",
    "{name: sigmoid, k: 2}",
    "{name: sigmoid, k: 2, bias: {rate: 1e-3}}",
    "{name: sigmoid, k: 2, groups: {count: 2, keep: 1}}",
    "{name: sigmoid, k: 2, groups: {count: 2, keep: 1, score: topk_sum}, noise: learned}",
    "{name: sqrt_softplus, k: 2}",
    "{name: sqrt_softplus, k: 2, bias: {rate: 1e-3}}",
    "{name: sqrt_softplus, k: 2, groups: {count: 2, keep: 2}, noise: gaussian}",
    "{name: sinkhorn, k: 2}",
    "{name: expert_choice, k: 2}",
};

/// A router whose logits are its input in exact arithmetic, as is what its noise is made of.
std::shared_ptr<Router> exact_router(const std::string& recipe, int64_t num_units,
                                     at::ScalarType dtype) {
  std::shared_ptr<Router> router = router_of(recipe, {num_units, num_units, dtype});
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& weight : router->parameters()) weight.copy_(torch::eye(num_units));
  return router;
}

struct Samples {
  int64_t first = 0, per_group = 4;
  bool training = true;
};

/// Samples of one token each.
Routing route_samples(Router& router, const torch::Tensor& x_TD, const Samples& samples) {
  StepContext step = step_of(x_TD.size(0), samples.per_group, samples.training);
  step.sample_b += samples.first;
  return router.route(x_TD, make_token_context(step, 5, 1));
}

TEST(Ties, TokensTakeTheLowerOfUnitsWithEqualLogits) {
  for (const std::string recipe : kRouters) {
    if (recipe.find("expert_choice") != std::string::npos) continue;  // units choose
    SCOPED_TRACE(recipe);
    const bool training = recipe.find("sinkhorn") != std::string::npos;
    for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
      for (const int64_t num_units : {4, 6, 8, 10, 22, 34}) {
        auto router = exact_router(recipe, num_units, dtype);
        for (const int64_t num_tokens : {1, 2, 3, 4, 5, 7, 11, 19, 301}) {
          for (const torch::Tensor& logit_T1 : {torch::full({num_tokens, 1}, 3.7, torch::kFloat64),
                                                torch::full({num_tokens, 1}, 0.1, torch::kFloat64),
                                                some_numbers({num_tokens, 1}, num_tokens) * 5}) {
            const torch::Tensor x = logit_T1.to(dtype).expand({num_tokens, num_units}).contiguous();
            const Routing routing = route_samples(*router, x, {0, num_tokens, training});
            EXPECT_TRUE(torch::equal(routing.choice_TK, torch::arange(2).expand({num_tokens, 2})))
                << num_tokens << " of " << num_units << "\n"
                << routing.choice_TK;
          }
        }
      }
    }
  }
}

TEST(Ties, NothingOfATokenDependsOnWhereItIs) {
  constexpr int64_t kTokens = 40;
  for (const std::string recipe : kRouters) {
    SCOPED_TRACE(recipe);
    for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
      for (const int64_t num_units : {4, 6, 22}) {
        auto router = exact_router(recipe, num_units, dtype);
        const torch::Tensor x = (some_numbers({kTokens, num_units}, 4) * 5).to(dtype);
        const Routing all = route_samples(*router, x, {});
        for (const int64_t first : {0, 4, 12, 28}) {
          for (const int64_t count : {4, 8, 12}) {
            const Routing part = route_samples(*router, x.narrow(0, first, count), {first});
            for (const auto member :
                 {&Routing::unit_TK, &Routing::weight_TK, &Routing::score_TK, &Routing::priority_T,
                  &Routing::noisy_TU, &Routing::prob_TU, &Routing::noise_std_TU}) {
              if (!(all.*member).defined()) continue;
              EXPECT_TRUE(torch::equal(part.*member, (all.*member).narrow(0, first, count)))
                  << first << " + " << count << " of " << num_units;
            }
          }
        }
      }
    }
  }
}

/// Sixteen samples of three tokens whose logits are all 3.7, on so many replicas: the loads that a
/// training step counts, then each token's first unit in evaluation.
torch::Tensor choices_on(const std::string& recipe, int64_t replicas) {
  constexpr int64_t kSamples = 16, kUnits = 6;
  std::vector<torch::Tensor> loads(static_cast<size_t>(replicas)), units(loads);
  testing::run_grid(1, replicas, [&](RankGrid& grid) {
    const auto rank = static_cast<size_t>(grid.world->rank());
    MoeLayer layer(layer_options(router_choice(recipe), {}, {}, kUnits), kUnits, "blocks.1.moe",
                   {.grid = &grid, .tensor_options = torch::kFloat64});
    const std::vector<Parameter> parameters = parameters_of(layer, "moe");
    initialise(parameters, 9);
    const torch::NoGradGuard no_grad;
    for (const Parameter& parameter : parameters) {
      if (parameter.name == "moe.router.weight") parameter.tensor.copy_(torch::eye(kUnits));
    }
    for (torch::Tensor& buffer : layer.buffers()) buffer.zero_();
    const int64_t count = kSamples / replicas;
    StepContext step = step_of(count, 1);
    step.sample_b += static_cast<int64_t>(rank) * count;
    step.samples_in_step = step.samples_in_micro = kSamples;
    const torch::Tensor x = torch::full({count, 3, kUnits}, 3.7, torch::kFloat64);
    loads[rank] = layer.forward(x, step).stats.sums.narrow(0, 0, kUnits);
    step.training = false;
    units[rank] = layer.forward(x, step).stats.first_unit_T.to(torch::kFloat64);
  });
  return torch::cat({torch::stack(loads).sum(0), torch::cat(units)});
}

TEST(TiesRanks, EqualLogitsChooseAlikeOnAnyNumberOfRanks) {
  const torch::Tensor lowest =
      torch::cat({torch::tensor({48.0, 48.0, 0.0, 0.0, 0.0, 0.0}, torch::kFloat64),
                  torch::zeros({48}, torch::kFloat64)});
  for (const char* recipe :
       {"{name: top_k, k: 2, noise: none}", "{name: sigmoid, k: 2, bias: {rate: 1e-3}}",
        "{name: sigmoid, k: 2, groups: {count: 2, keep: 1}}",
        "{name: sqrt_softplus, k: 2, bias: {rate: 1e-3}}",
        "{name: sqrt_softplus, k: 2, groups: {count: 3, keep: 1}}", "{name: sinkhorn, k: 2}"}) {
    for (const int64_t replicas : {1, 2, 16}) {
      EXPECT_TRUE(torch::equal(choices_on(recipe, replicas), lowest))
          << recipe << " on " << replicas << ": " << choices_on(recipe, replicas);
    }
  }
}

}  // namespace
}  // namespace shoal
