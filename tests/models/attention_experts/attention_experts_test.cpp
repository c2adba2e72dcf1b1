#include "models/attention_experts/attention_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "runtime/module/module.h"
#include "runtime/options/config_reader.h"
#include "tests/models/attention_experts/attention_case.h"
#include "tests/support/config_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

// B images  N tokens of an image  D width  T = B N tokens  U experts
namespace shoal {
namespace {

using testing::apart;
using testing::attention_options;
using testing::attention_step;
using ::testing::HasSubstr;
using testing::kAttentionPath;
using testing::kAttentionSizes;
using testing::self_grid;
using testing::some_numbers;

using Tensors = std::map<std::string, torch::Tensor>;

/// A float64 layer on one rank, and its parameters by name.
struct Layer {
  explicit Layer(const AttentionExpertsOptions& options)
      : layer(options, kAttentionSizes, "", {.grid = &grid, .tensor_options = torch::kFloat64}) {
    const std::vector<Parameter> all = parameters_of(layer);
    initialise(all, 7);
    for (const Parameter& parameter : all) parameters[parameter.name] = parameter.tensor;
    const torch::NoGradGuard no_grad;
    // So that tokens decide, and for every expert.
    parameters.at("router.fc1.weight") *= 4;
    parameters.at("router.fc2.weight") *= 8;
    parameters.at("router.fc2.bias").zero_();
  }
  RankGrid grid = self_grid();
  AttentionExperts layer;
  Tensors parameters;
};

/// A layer from the specification's equations: every expert computes every token, then weights of
/// experts that a token is not routed to are zero.
torch::Tensor by_equations(const Tensors& p, const AttentionExpertsOptions& options, bool is_hard,
                           const torch::Tensor& x_BND) {
  const int64_t B = x_BND.size(0), N = x_BND.size(1), D = x_BND.size(2);
  const torch::Tensor hidden =
      at::linear(x_BND, p.at("router.fc1.weight"), p.at("router.fc1.bias")).relu();
  torch::Tensor weight_BNU =
      at::linear(hidden, p.at("router.fc2.weight"), p.at("router.fc2.bias")).softmax(2);
  if (is_hard) {
    const torch::Tensor best = weight_BNU.argmax(2, /*keepdim=*/true);
    weight_BNU = torch::zeros_like(weight_BNU).scatter(2, best, weight_BNU.gather(2, best));
  }
  const bool is_shared = options.mixing == Mixing::kHardSharedKv;
  torch::Tensor y = torch::zeros_like(x_BND);
  ImageQueries queries;
  for (int64_t b = 0; b <= B; ++b) queries.offset_i1.push_back(b * N);
  for (int64_t e = 0; e < 3; ++e) {
    const auto project = [&](const std::string& name) {
      return x_BND.matmul(p.at("experts.*." + name + ".weight")[e]) +
             p.at("experts.*." + name + ".bias")[e];
    };
    std::vector<torch::Tensor> key_value;
    if (is_shared) {
      key_value = at::linear(x_BND, p.at("key_value.weight"), p.at("key_value.bias")).chunk(2, 2);
    } else {
      key_value = {project("key"), project("value")};
    }
    const AttentionExpertOptions& expert = options.experts[static_cast<size_t>(e)];
    const torch::Tensor attended =
        top_k_attention_portable(project("query").reshape({B * N, D}), key_value[0], key_value[1],
                                 queries,
                                 {2, expert.k.value_or(e == 1 ? 3 : 6), expert.candidates, {2, 3}})
            .view({B, N, D});
    y = y + weight_BNU.select(2, e).unsqueeze(2) *
                (attended.matmul(p.at("experts.*.out.weight")[e]) + p.at("experts.*.out.bias")[e]);
  }
  return y;
}

/// Output and gradients under one loss.
Tensors differentiate(const torch::Tensor& y, const torch::Tensor& x, const Tensors& parameters) {
  for (const auto& [name, tensor] : parameters) tensor.mutable_grad().reset();
  x.mutable_grad().reset();
  (y * some_numbers(y.sizes(), 5)).sum().backward();
  Tensors result{{"y", y.detach()}, {"x", x.grad().clone()}};
  for (const auto& [name, tensor] : parameters) result[name] = tensor.grad().clone();
  return result;
}

double worst_apart(const Tensors& a, const Tensors& b) {
  double worst = 0;
  for (const auto& [name, tensor] : a) worst = testing::worst_of(worst, apart(tensor, b.at(name)));
  return worst;
}

TEST(AttentionExperts, SoftMixingIsTheSumOverAllExperts) {
  const AttentionExpertsOptions options = attention_options(Mixing::kSoft);
  Layer test(options);
  const torch::Tensor x = some_numbers({5, 6, 4}, 3).requires_grad_();
  const Tensors expected =
      differentiate(by_equations(test.parameters, options, false, x), x, test.parameters);
  const MoeOutput output = test.layer.forward(x, attention_step(0, 5, 5));
  EXPECT_LT(worst_apart(differentiate(output.y_BRD, x, test.parameters), expected), 1e-14);
  EXPECT_FALSE(output.stats.load_is_work);
}

TEST(AttentionExperts, HardMixingHasTheRowsOfTheFullComputationForwardAndBackward) {
  for (const Mixing mixing : {Mixing::kHard, Mixing::kHardSharedKv}) {
    const AttentionExpertsOptions options = attention_options(mixing);
    Layer test(options);
    const torch::Tensor x = some_numbers({7, 6, 4}, 3).requires_grad_();
    const Tensors expected =
        differentiate(by_equations(test.parameters, options, true, x), x, test.parameters);
    const MoeOutput output = test.layer.forward(x, attention_step(0, 7, 7));
    EXPECT_LT(worst_apart(differentiate(output.y_BRD, x, test.parameters), expected), 1e-14);
    const MoeReport loads = report(output.stats);
    EXPECT_EQ(loads.load_U[0] + loads.load_U[1] + loads.load_U[2], 42);
    EXPECT_GT(loads.load_min, 0);
    // Some images have no token for an expert.
    StepContext step = attention_step(0, 7, 7);
    step.training = false;
    const torch::NoGradGuard no_grad;
    const torch::Tensor unit_BN = test.layer.forward(x, step).stats.first_unit_T.view({7, 6, 1});
    EXPECT_GT(((unit_BN == torch::arange(3)).sum(1) == 0).sum().item<int64_t>(), 0);
  }
}

// Routed like any other model's: a token that is left out has no output, and is counted.
TEST(AttentionExperts, CountsTokensThatTheRouterLeavesOut) {
  AttentionExpertsOptions options = attention_options(Mixing::kHard);
  const auto run = [&](const std::string& router) {
    options.router = testing::router_choice(router);
    RankGrid grid = self_grid();
    AttentionExperts layer(options, kAttentionSizes, "",
                           {.grid = &grid, .tensor_options = torch::kFloat64});
    initialise(parameters_of(layer), 7);
    const MoeOutput output =
        layer.forward(some_numbers({6, 6, 4}, 3), attention_step(0, 6, 6, /*group=*/3));
    return std::pair{report(output.stats), (output.y_BRD.abs().amax(2) == 0).sum().item<int64_t>()};
  };
  const auto [dropped, num_zeros] = run("{name: importance_score, k: 1, drop: 0.5}");
  EXPECT_EQ(num_zeros, 18);
  EXPECT_EQ(dropped.unrouted, 0.5);
  EXPECT_EQ(dropped.dropped, 0.5);
  const auto [chosen, num_unchosen] = run("{name: expert_choice, k: 1}");
  EXPECT_GT(num_unchosen, 0);
  EXPECT_EQ(chosen.unrouted, static_cast<double>(num_unchosen) / 36);
  EXPECT_EQ(chosen.dropped, 0.0);
  EXPECT_EQ(run("{name: mlp}").first.unrouted, 0.0);
}

TEST(AttentionExperts, AnExpertWithoutTokensGetsZeroGradients) {
  for (const Mixing mixing : {Mixing::kHard, Mixing::kHardSharedKv}) {
    const AttentionExpertsOptions options = attention_options(mixing);
    Layer test(options);
    {
      const torch::NoGradGuard no_grad;
      test.parameters.at("router.fc2.bias")[1] -= 1e3;
    }
    const torch::Tensor x = some_numbers({3, 6, 4}, 3).requires_grad_();
    const Tensors expected =
        differentiate(by_equations(test.parameters, options, true, x), x, test.parameters);
    const MoeOutput output = test.layer.forward(x, attention_step(0, 3, 3));
    const Tensors result = differentiate(output.y_BRD, x, test.parameters);
    EXPECT_LT(worst_apart(result, expected), 1e-14);
    EXPECT_EQ(result.at("experts.*.query.weight")[1].abs().max().item<double>(), 0);
    EXPECT_EQ(report(output.stats).dead_units, 1);
  }
}

TEST(AttentionExperts, TakesNoImages) {
  for (const Mixing mixing : {Mixing::kSoft, Mixing::kHard, Mixing::kHardSharedKv}) {
    Layer test(attention_options(mixing));
    const torch::Tensor x = torch::zeros({0, 6, 4}, torch::kFloat64).requires_grad_();
    const MoeOutput output = test.layer.forward(x, attention_step(0, 0, 4));
    EXPECT_EQ(output.y_BRD.sizes(), at::IntArrayRef({0, 6, 4}));
    const Tensors result = differentiate(output.y_BRD, x, test.parameters);
    const std::string key =
        mixing == Mixing::kHardSharedKv ? "key_value.weight" : "experts.*.key.weight";
    EXPECT_EQ(result.at(key).abs().max().item<double>(), 0) << key;
  }
}

TEST(AttentionExperts, SoftStepsAreSoftInTrainingAlone) {
  AttentionExpertsOptions options = attention_options(Mixing::kHard);
  options.soft_steps = 3;
  Layer test(options);
  const torch::Tensor x = some_numbers({4, 6, 4}, 3);
  const torch::NoGradGuard no_grad;
  const torch::Tensor soft = by_equations(test.parameters, options, false, x);
  const torch::Tensor hard = by_equations(test.parameters, options, true, x);
  StepContext step = attention_step(0, 4, 4);
  step.step = 2;
  EXPECT_LT(apart(test.layer.forward(x, step).y_BRD, soft), 1e-14);
  step.step = 3;
  EXPECT_LT(apart(test.layer.forward(x, step).y_BRD, hard), 1e-14);
  step.step = 0;
  step.training = false;
  EXPECT_LT(apart(test.layer.forward(x, step).y_BRD, hard), 1e-14);
}

// Projections, attention, last layer and mixing round once each, gradients as often again.
TEST(AttentionExperts, ComputesInBfloat16ForwardAndBackward) {
  const double epsilon = std::numeric_limits<c10::BFloat16>::epsilon();
  for (const Mixing mixing : {Mixing::kSoft, Mixing::kHard, Mixing::kHardSharedKv}) {
    Layer test(attention_options(mixing));
    AttentionExperts layer(attention_options(mixing), kAttentionSizes, "", {.grid = &test.grid});
    initialise(parameters_of(layer), 7);
    const auto output_and_gradient = [&](torch::Dtype type) {
      const torch::Tensor x =
          some_numbers({4, 6, 4}, 3).to(torch::kBFloat16).to(type).requires_grad_();
      const torch::Tensor y = layer.forward(x, attention_step(0, 4, 4)).y_BRD;
      EXPECT_EQ(y.scalar_type(), type);
      (y * some_numbers(y.sizes(), 5).to(type)).sum().backward();
      return std::vector<torch::Tensor>{y.detach(), x.grad()};
    };
    const auto narrow = output_and_gradient(torch::kBFloat16);
    const auto wide = output_and_gradient(torch::kFloat32);
    EXPECT_LT(testing::relative_error(narrow[0], wide[0]), 4 * epsilon) << enum_name(mixing);
    EXPECT_LT(testing::relative_error(narrow[1], wide[1]), 8 * epsilon) << enum_name(mixing);
  }
}

TEST(AttentionExperts, RefusesByName) {
  const auto mistake = [](const std::string& keys) {
    return testing::config_error_of([&] {
      (void)config::load_options_text<AttentionExpertsOptions>("{" + keys + "}", "test",
                                                               {"", {}, nullptr});
    });
  };
  EXPECT_THAT(mistake("experts: [{k: 0}]"), HasSubstr("experts[0].k"));
  EXPECT_THAT(mistake("experts: [{share: 0}]"), HasSubstr("experts[0].share"));
  EXPECT_THAT(mistake("experts: [{k: 3, share: 0.5}]"), HasSubstr("k is set as well"));
  EXPECT_THAT(mistake("experts: [{candidates: {from: window, window: 0}}]"),
              HasSubstr("experts[0].candidates.window"));
  EXPECT_THAT(mistake("experts: [{candidates: {from: window, window: 4}}]"), HasSubstr("odd"));
  EXPECT_THAT(mistake("experts: [{candidates: {from: pooled, keep: 0}}]"), HasSubstr("keep"));
  EXPECT_THAT(mistake("experts: []"), HasSubstr("experts: is empty"));
  EXPECT_THAT(mistake("soft_steps: 5"), HasSubstr("soft all along"));
  EXPECT_THAT(mistake("router: {name: hash, k: 1}"),
              HasSubstr("router.name: hash does not route a token by its own scores"));
  EXPECT_THAT(mistake("router: {name: mlp, k: 4}, mixing: hard"), HasSubstr("router.k"));
  EXPECT_THAT(mistake("router: {name: expert_choice}, mixing: hard, soft_steps: 1"),
              HasSubstr("router.name: expert_choice"));
  EXPECT_EQ(mistake("router: {name: expert_choice, k: 1}, mixing: hard"), "no error");
  EXPECT_EQ(mistake("router: {name: top_k, k: 2}, mixing: hard"), "no error");
  EXPECT_THAT(mistake("experts: [{candidates: {window: 3}}]"), HasSubstr("needs from: window"));
  EXPECT_THAT(mistake("experts: [{candidates: {from: window}}]"), HasSubstr("is missing"));
  EXPECT_THAT(mistake("router: {name: hash, k: 1, by: token}, mixing: hard"),
              HasSubstr("router.by"));
}

TEST(AttentionExperts, AutomaticLossesAreThoseOfTheMixing) {
  const auto losses = [](const std::string& keys) {
    std::vector<std::string> names;
    const auto options = config::load_options_text<AttentionExpertsOptions>("{" + keys + "}", "r");
    for (const Choice<BalanceLoss>& loss : *options.options.losses) names.push_back(loss.name());
    return names;
  };
  EXPECT_THAT(losses("losses: auto"), ::testing::ElementsAre("kl_uniform"));
  EXPECT_THAT(losses("losses: auto, mixing: hard"), ::testing::ElementsAre("switch", "entropy"));
  EXPECT_THAT(losses("mixing: hard"), ::testing::IsEmpty());
}

TEST(AttentionExperts, AreUnbalancedWithoutALossWhereTokensChoose) {
  const auto unbalanced = [](Mixing mixing, const std::vector<std::string>& losses) {
    AttentionExpertsOptions options = testing::attention_options(mixing);
    for (const std::string& loss : losses) options.losses->emplace_back(loss);
    const BuildContext context{.tensor_options = torch::TensorOptions().device(torch::kMeta)};
    return AttentionExperts(options, testing::kAttentionSizes, testing::kAttentionPath, context)
        .info()
        .unbalanced;
  };
  EXPECT_EQ(unbalanced(Mixing::kHard, {"entropy"}), "mlp");
  EXPECT_EQ(unbalanced(Mixing::kHard, {"entropy", "switch"}), "");
  EXPECT_EQ(unbalanced(Mixing::kSoft, {}), "");
}

TEST(AttentionExperts, RefusesRouterOptionsWithoutEffect) {
  const auto mistake = [](const std::string& keys) {
    return testing::config_error_of([&] {
      (void)config::load_options_text<AttentionExpertsOptions>("{" + keys + "}", "test",
                                                               {"", {}, nullptr});
    });
  };
  EXPECT_THAT(mistake("router: {name: mlp, k: 2}"), HasSubstr("router.k: 2, but every token"));
  EXPECT_THAT(mistake("router: {name: top_k, k: 1}"), HasSubstr("router.noise"));
  EXPECT_THAT(mistake("router: {name: mlp, weights: {scale: 2}}"), HasSubstr("weights.scale"));
  EXPECT_THAT(mistake("router: {name: mlp, bias: {rate: 0.1}}"), HasSubstr("bias.rate"));
  EXPECT_THAT(mistake("router: {name: mlp, groups: {count: 3, score: max}}"),
              HasSubstr("groups.count"));
  EXPECT_THAT(mistake("router: {name: importance_score, noise: none}"), HasSubstr("router.drop"));
  EXPECT_EQ(mistake("router: {name: importance_score, noise: none, drop: 0}"), "no error");
  const std::string renorm = "router: {name: mlp, k: 2, weights: {renorm_after_drop: true}}";
  EXPECT_THAT(mistake(renorm + ", mixing: hard"), HasSubstr("renorm_after_drop"));
}

}  // namespace
}  // namespace shoal
