#include "moe/moe_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "moe/experts/expert_bank.h"
#include "moe/routers/importance_score.h"
#include "moe/routers/top_k.h"
#include "runtime/base/error.h"
#include "runtime/random/random.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/moe/small_layer.h"
#include "tests/support/collected_problems.h"
#include "tests/support/config_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"
#include "tests/support/moe_layer_fixture.h"
#include "tests/support/reference_moe.h"

// B samples  R rows per sample  T = B R tokens  D width  U units
namespace shoal {
namespace {

using testing::CollectedProblems;
using testing::difference;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kPath;
using testing::layer_cases;
using testing::layer_options;
using testing::LayerCase;
using testing::LayerResult;
using testing::parameter_of;
using testing::router_choice;
using testing::run_layer_on;
using testing::self_grid;
using testing::some_numbers;
using testing::step_of;
using testing::values;

TEST(MoeLayer, Float32IsFloat64ToRounding) {  // P2
  for (const int64_t units : {4, 8}) {
    for (const int64_t k : {2, 3}) {
      RankGrid grid = self_grid();
      MoeOptions options =
          layer_options({"top_k", ScoreOptions{k, RouterNoise::kNone, {}}}, {}, {});
      options.experts =
          Choice<UnitBank>("plain", ExpertBank::Options{units, 32, Activation::kGelu, true});
      std::vector<std::vector<torch::Tensor>> results;
      for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
        MoeLayer layer(options, 16, kPath, {&grid, dtype});
        const std::vector<Parameter> parameters = parameters_of(layer, kPath);
        testing::fill_parameters(layer);
        const torch::Tensor x = some_numbers({4, 1, 16}, 1, dtype).set_requires_grad(true);
        const torch::Tensor y = layer.forward(x, step_of(4)).y_BRD;
        (y * some_numbers(y.sizes(), 2, dtype)).sum().backward();
        results.push_back({y.detach(), x.grad()});
        for (const Parameter& parameter : parameters) {
          results.back().push_back(parameter.tensor.grad());
        }
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        const torch::Tensor& exact = results[1][i];
        const double apart = (results[0][i] - exact).abs().max().item<double>();
        // Sums of up to 32 products of numbers below 1: a few float32 roundings of the largest.
        EXPECT_LT(apart, 1e-5 * std::max(1.0, exact.abs().max().item<double>())) << i;
      }
    }
  }
}

TEST(MoeLayer, CapacityThatDropsNothingEqualsDropless) {  // P1
  for (int64_t units = 1; units <= 8; ++units) {
    for (int64_t k = 1; k <= units; ++k) {
      LayerCase open{"open", layer_options({"top_k", ScoreOptions{k, RouterNoise::kGaussian, {}}},
                                           {}, {{"load", ScopeKind::kGroup}}, units)};
      open.num_samples = 16;
      open.rows_per_sample = 24;
      open.width = 12;
      const LayerResult expected = run_layer_on(open, 1, 1);
      for (const CapacityMode mode : {CapacityMode::kCapped, CapacityMode::kPadded}) {
        LayerCase wide = open;
        // C = T k: room for every choice in any one unit.
        wide.options.capacity = {mode, static_cast<double>(units), 4, 1,
                                 CapacityOrder::kProbability};
        const testing::Difference worst = difference(run_layer_on(wide, 1, 1), expected);
        // The loss is a sum that may cancel to 1 / 30,000 of its parts.
        EXPECT_LT(worst.value, 1e-12) << units << " units, " << k << " a token: " << worst.where;
      }
    }
  }
}

TEST(MoeLayer, OneExpertWithoutNoiseIsItsMlp) {  // P1
  RankGrid grid = self_grid();
  const MoeOptions options =
      layer_options({"top_k", ScoreOptions{1, RouterNoise::kNone, {}}}, {}, {}, 1);
  MoeLayer layer(options, 6, kPath, {&grid, torch::kFloat64});
  initialise(parameters_of(layer, kPath), 9);
  const torch::Tensor x = some_numbers({3, 4, 6}, 1).set_requires_grad(true);
  const torch::Tensor upstream = some_numbers({3, 4, 6}, 2);
  std::vector<torch::Tensor> tensors{x};
  for (const char* name : {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}) {
    tensors.push_back(parameter_of(layer, std::string("experts.*.") + name));
  }
  const torch::Tensor y = layer.forward(x, step_of(3)).y_BRD;
  (y * upstream).sum().backward();
  std::vector<torch::Tensor> grads;
  for (torch::Tensor tensor : tensors) {
    grads.push_back(tensor.grad().clone());
    tensor.mutable_grad().reset();
  }
  const torch::Tensor hidden = torch::gelu(x.matmul(tensors[1][0]) + tensors[2][0]);
  const torch::Tensor expected = hidden.matmul(tensors[3][0]) + tensors[4][0];
  (expected * upstream).sum().backward();
  EXPECT_LT((y - expected).abs().max().item<double>(), 1e-14);
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_LT((grads[i] - tensors[i].grad()).abs().max().item<double>(), 1e-13) << i;
  }
}

TEST(MoeLayer, RouterOfOneUnitATokenLearnsFromTheTask) {  // R7
  LayerCase test{"top 1",
                 layer_options({"top_k", ScoreOptions{1, RouterNoise::kNone, {}}}, {}, {})};
  const LayerResult result = run_layer_on(test, 1, 1);
  EXPECT_GT(result.tensors.at("blocks.1.moe_c.router.weight.grad").abs().max().item<double>(),
            1e-3);
}

TEST(MoeLayer, EvaluationIsDroplessWithoutNoiseAndLosses) {
  LayerCase tight{"tight", layer_options({"top_k", ScoreOptions{2, RouterNoise::kGaussian, {}}},
                                         {CapacityMode::kPadded, 0.1, 0, 1, {}},
                                         {{"load", ScopeKind::kGroup}})};
  tight.training = false;
  LayerCase open{"open", layer_options({"top_k", ScoreOptions{2, RouterNoise::kNone, {}}}, {}, {})};
  EXPECT_LT(difference(run_layer_on(tight, 1, 1), run_layer_on(open, 1, 1)).value, 1e-15);
}

TEST(MoeLayer, EvaluationTakesAShortLastGroup) {
  RankGrid grid = self_grid();
  MoeLayer layer(layer_cases().front().options, 6, kPath, {&grid, torch::kFloat64});
  initialise(parameters_of(layer, kPath), 9);
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = some_numbers({7, 5, 6}, 1);
  StepContext step = step_of(7, 4, false);
  const torch::Tensor all = layer.forward(x, step).y_BRD;
  step.sample_b = torch::arange(4, 7);
  const torch::Tensor tail = layer.forward(x.narrow(0, 4, 3), step).y_BRD;
  EXPECT_LT((all.narrow(0, 4, 3) - tail).abs().max().item<double>(), 1e-14);
}

TEST(MoeLayer, TokensWhoseChoicesWereAllDroppedGetZero) {
  RankGrid grid = self_grid();
  const MoeOptions options =
      layer_options({"top_k", ScoreOptions{1, RouterNoise::kNone, {}}},
                    {CapacityMode::kCapped, 0.01, 1, 1, CapacityOrder::kPosition}, {}, 1);
  MoeLayer layer(options, 6, kPath, {&grid, torch::kFloat64});
  initialise(parameters_of(layer, kPath), 9);
  const MoeOutput output = layer.forward(some_numbers({1, 5, 6}, 1), step_of(1));
  EXPECT_GT(output.y_BRD[0][0].abs().max().item<double>(), 0.0);
  EXPECT_EQ(output.y_BRD[0].narrow(0, 1, 4).abs().max().item<double>(), 0.0);
  EXPECT_NEAR(report(output.stats).dropped, 0.8, 1e-15);
  EXPECT_NEAR(report(output.stats).unrouted, 0.8, 1e-15);
}

TEST(MoeLayer, TokensWithARowLeftAreRouted) {
  RankGrid grid = self_grid();
  // Both units take two of the four tokens' choices, which all tokens have of both.
  const MoeOptions options =
      layer_options({"top_k", ScoreOptions{2, RouterNoise::kNone, {}}},
                    {CapacityMode::kCapped, 0.5, 1, 1, CapacityOrder::kPosition}, {}, 2);
  MoeLayer layer(options, 6, kPath, {&grid, torch::kFloat64});
  initialise(parameters_of(layer, kPath), 9);
  const MoeReport result = report(layer.forward(some_numbers({1, 4, 6}, 1), step_of(1)).stats);
  EXPECT_EQ(result.load_U, (std::vector<int64_t>{4, 4}));
  EXPECT_NEAR(result.dropped, 0.5, 1e-15);
  EXPECT_NEAR(result.unrouted, 0.5, 1e-15);
}

TEST(MoeLayer, EvaluationTellsEachTokensFirstUnit) {
  RankGrid grid = self_grid();
  MoeLayer layer(layer_options({"top_k", ScoreOptions{2, RouterNoise::kGaussian, {}}}, {}, {}), 6,
                 kPath, {&grid, torch::kFloat64});
  initialise(parameters_of(layer, kPath), 9);
  const torch::Tensor x = some_numbers({3, 4, 6}, 1);
  EXPECT_FALSE(layer.forward(x, step_of(3)).stats.first_unit_T.defined());
  const torch::Tensor logits = x.reshape({12, 6}).matmul(parameter_of(layer, "router.weight"));
  EXPECT_TRUE(
      torch::equal(layer.forward(x, step_of(3, 2, false)).stats.first_unit_T, logits.argmax(1)));
}

// Units 0 and 1 both take token 1, unit 2 token 2; nobody takes token 0.
TEST(MoeLayer, CountsTokensThatNoUnitChose) {
  RankGrid grid = self_grid();
  MoeLayer layer(layer_options(router_choice("{name: expert_choice, k: 1}"), {}, {}, 3), 3, kPath,
                 {&grid, torch::kFloat64});
  initialise(parameters_of(layer, kPath), 9);
  {
    const torch::NoGradGuard no_grad;
    parameter_of(layer, "router.weight").copy_(torch::eye(3));
  }
  const torch::Tensor x =
      torch::tensor({{{.35, .35, .3}, {.4, .5, .1}, {.1, .2, .7}}}, torch::kFloat64).log();
  for (const bool training : {true, false}) {
    const MoeOutput output = layer.forward(x, step_of(1, 2, training));
    const MoeReport result = report(output.stats);
    EXPECT_EQ(result.load_U, (std::vector<int64_t>{1, 1, 1}));
    EXPECT_EQ(result.dropped, 0.0);
    EXPECT_NEAR(result.unrouted, 1.0 / 3, 1e-15);
    EXPECT_EQ(output.y_BRD[0][0].abs().max().item<double>(), 0.0);
    if (training) continue;
    EXPECT_EQ(values(output.stats.first_unit_T), (std::vector<int64_t>{-1, 1, 2}));
  }
}

TEST(MoeLayer, AuxiliaryLossIsTheWeightedMeanOverItsScope) {
  const std::vector<std::pair<std::string, ScopeKind>> losses{{"importance", ScopeKind::kGroup},
                                                              {"load", ScopeKind::kSequence}};
  RankGrid grid = self_grid();
  const MoeOptions options =
      layer_options({"top_k", ScoreOptions{2, RouterNoise::kGaussian, {}}}, {}, losses);
  MoeLayer layer(options, 6, kPath, {&grid, torch::kFloat64});
  initialise(parameters_of(layer, kPath), 9);
  const torch::Tensor x = some_numbers({4, 5, 6}, 1);
  StepContext step = step_of(4);
  step.samples_in_step = 12;  // two more micro-steps of this size
  const MoeOutput output = layer.forward(x, step);

  const Stream stream{step.seed, Purpose::kRouterNoise, hash_name(kPath),
                      static_cast<uint64_t>(step.step)};
  const torch::Tensor noise = normal_rows(stream, torch::arange(20), 4, torch::kFloat64) * 0.25;
  const torch::Tensor logits =
      x.reshape({20, 6}).matmul(parameter_of(layer, "router.weight")).detach();
  double importance = 0.0, load = 0.0;  // sums over instances, weighted by their tokens
  for (int64_t group = 0; group < 2; ++group) {
    importance += 10 * testing::reference_importance_loss(logits.narrow(0, group * 10, 10));
  }
  for (int64_t sample = 0; sample < 4; ++sample) {
    const torch::Tensor own = logits.narrow(0, sample * 5, 5);
    load += 5 * testing::reference_load_loss(own, own + noise.narrow(0, sample * 5, 5), 2, 0.25);
  }
  EXPECT_NEAR(output.auxiliary_loss.item<double>(), 0.3 * (importance + load) / 60, 1e-14);
  const MoeReport result = report(output.stats);
  ASSERT_EQ(result.losses.size(), 2u);
  EXPECT_NEAR(result.losses[0].second, importance / 20, 1e-13);
  EXPECT_NEAR(result.losses[1].second, load / 20, 1e-13);
}

TEST(MoeLayer, CountsWhatItDid) {
  RankGrid grid = self_grid();
  MoeLayer layer(layer_cases()[6].options, 6, kPath, {&grid, torch::kFloat64});
  initialise(parameters_of(layer, kPath), 9);
  const MoeOutput output = layer.forward(some_numbers({4, 5, 6}, 1), step_of(4));
  const MoeReport result = report(output.stats);
  EXPECT_EQ(result.layer, kPath);
  EXPECT_EQ(result.tokens, 20);
  int64_t chosen = 0;
  for (const int64_t load : result.load_U) chosen += load;
  EXPECT_EQ(chosen, 14);  // importance-score routing masks 3 tokens in each of two groups of 10
  EXPECT_GE(result.dropped, 0.3);
  EXPECT_GT(result.router_entropy, 0.0);
  EXPECT_LE(result.router_entropy, 1.0);
}

TEST(MoeLayer, EntropyOfCertainTokensIsZero) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    RankGrid grid = self_grid();
    MoeLayer layer(layer_options({"top_k", ScoreOptions{1, RouterNoise::kNone, {}}}, {}, {}), 4,
                   kPath, {&grid, dtype});
    initialise(parameters_of(layer, kPath), 9);
    {
      const torch::NoGradGuard no_grad;
      parameter_of(layer, "router.weight").copy_(torch::eye(4));
    }
    // Scores 1, and e^-800 (0 in any dtype), e^-80 and e^-40; then a token of even scores.
    const torch::Tensor x = torch::tensor({{{800.0, 0.0, 720.0, 760.0}, {1.0, 1.0, 1.0, 1.0}}});
    const MoeReport result = report(layer.forward(x.to(dtype), step_of(1, 2, false)).stats);
    EXPECT_NEAR(result.router_entropy, 0.5, 1e-7);
  }
}

TEST(MoeLayer, TellsTheInformationBetweenTokensAndUnits) {
  const auto information = [](const Choice<Router>& router, const torch::Tensor& x_RD) {
    RankGrid grid = self_grid();
    MoeLayer layer(layer_options(router, {}, {}), 4, kPath, {&grid, torch::kFloat64});
    initialise(parameters_of(layer, kPath), 9);
    if (const torch::Tensor weight = parameter_of(layer, "router.weight"); weight.defined()) {
      const torch::NoGradGuard no_grad;
      weight.copy_(torch::eye(4));
    }
    const torch::Tensor x_BRD = x_RD.to(torch::kFloat64).unsqueeze(0);
    return report(layer.forward(x_BRD, step_of(1, x_RD.size(0))).stats).mutual_information;
  };
  const Choice<Router> top_k{"top_k", ScoreOptions{1, RouterNoise::kNone, {}}};
  EXPECT_NEAR(information(top_k, 800 * torch::eye(4)).value(), std::log(4.0), 1e-12);
  EXPECT_NEAR(information(top_k, torch::ones({4, 4})).value(), 0.0, 1e-12);
  EXPECT_FALSE(information(router_choice("{name: hash, k: 1}"), torch::ones({4, 4})));
}

TEST(MoeLayer, ATokenThatIsNoNumberSpoilsNoOther) {
  RankGrid grid = self_grid();
  MoeLayer layer(layer_options({"top_k", ScoreOptions{2, RouterNoise::kGaussian, {}}}, {}, {}), 6,
                 kPath, {&grid, torch::kFloat32});
  initialise(parameters_of(layer, kPath), 9);
  torch::Tensor x = some_numbers({3, 4, 6}, 1, torch::kFloat32);
  const torch::Tensor clean = layer.forward(x, step_of(3)).y_BRD;
  x[1][2][0] = std::nanf("");
  const torch::Tensor y = layer.forward(x, step_of(3)).y_BRD;
  EXPECT_TRUE(y[1][2].isnan().all().item<bool>());
  for (const int64_t sample : {0, 2}) {
    EXPECT_LT((y[sample] - clean[sample]).abs().max().item<double>(), 1e-6);
  }
}

TEST(MoeLayer, IsBuiltOnTheMetaDeviceWithoutMemoryAndRanks) {
  const MoeOptions options = layer_options({"top_k", ScoreOptions{}}, {}, {}, 4096);
  MoeLayer layer(options, 1024, kPath, {nullptr, torch::TensorOptions().device(torch::kMeta)});
  EXPECT_EQ(layer.info().num_units, 4096);
  EXPECT_EQ(layer.info().units_per_token, 2);
  EXPECT_EQ(parameter_of(layer, "router.weight").sizes(), (std::vector<int64_t>{1024, 4096}));
  EXPECT_THROW(layer.forward(torch::zeros({1, 1, 1024}), step_of(1)), c10::Error);
}

TEST(MoeLayer, OpensNoFileWithoutRanks) {
  const MoeOptions options = layer_options(
      router_choice("{name: forced, load: replay, file: /none/experts.jsonl}"), {}, {});
  EXPECT_NO_THROW(MoeLayer(options, 6, kPath, {nullptr, torch::kFloat64}));
  RankGrid grid = self_grid();
  EXPECT_THROW(MoeLayer(options, 6, kPath, {&grid, torch::kFloat64}), DataError);
}

TEST(MoeLayer, RouterIsFloat32UnlessTrainingIsFloat64) {
  RankGrid grid = self_grid();
  const MoeOptions options = layer_cases().front().options;
  const MoeLayer half(options, 6, kPath, {&grid, torch::kBFloat16});
  EXPECT_EQ(parameter_of(half, "router.weight").scalar_type(), torch::kFloat32);
  EXPECT_EQ(parameter_of(half, "experts.*.fc1.weight").scalar_type(), torch::kBFloat16);
  const MoeLayer wide(options, 6, kPath, {&grid, torch::kFloat64});
  EXPECT_EQ(parameter_of(wide, "router.weight").scalar_type(), torch::kFloat64);
}

std::vector<std::string> problems_of(const MoeOptions& options) {
  CollectedProblems problems;
  options.validate(problems);
  return problems.lines;
}

TEST(MoeLayer, RulesBetweenSectionsAreConfigErrors) {
  EXPECT_THAT(problems_of(MoeOptions{}), IsEmpty());
  MoeOptions options =
      layer_options({"top_k", ScoreOptions{3, RouterNoise::kNone, {}}}, {},
                    {{"importance", ScopeKind::kGroup}, {"load", ScopeKind::kGroup}}, 2);
  EXPECT_THAT(problems_of(options),
              ElementsAre("router.k: 3 units per token, but there are only 2",
                          HasSubstr("losses[1]: the load loss needs noise in the router")));
  EXPECT_THAT(testing::mistakes_of([&] {
                MoeLayer(options, 6, kPath, {nullptr, torch::kFloat64});
              }),
              ElementsAre(HasSubstr("blocks.1.moe_c.router.k: 3 units per token"),
                          HasSubstr("blocks.1.moe_c.losses[1]: the load loss")));
}

TEST(MoeLayer, ACausalModelRefusesWhatDependsOnLaterTokens) {
  const Capacity capped{CapacityMode::kCapped, 1.0, 0, 1, CapacityOrder::kProbability};
  const MoeOptions options = layer_options(router_choice("{name: expert_choice}"), {}, {});
  const MoeOptions both = layer_options(router_choice("{name: sinkhorn}"), capped, {});
  const auto mistakes = [](const MoeOptions& options, bool is_causal) {
    const BuildContext context{.tensor_options = torch::kFloat64, .is_causal = is_causal};
    return testing::mistakes_of([&] { MoeLayer(options, 6, kPath, context); });
  };
  EXPECT_THAT(mistakes(options, false), IsEmpty());
  EXPECT_THAT(mistakes(both, false), IsEmpty());
  EXPECT_THAT(mistakes(options, true),
              ElementsAre(HasSubstr(
                  "blocks.1.moe_c.router.name: a causal model cannot use expert_choice")));
  EXPECT_THAT(
      mistakes(both, true),
      ElementsAre(HasSubstr("blocks.1.moe_c.router.name: a causal model cannot use sinkhorn"),
                  HasSubstr("blocks.1.moe_c.capacity.order: a causal model cannot use "
                            "probability under a cap")));
}

TEST(MoeLayerRanks, ParallelEqualsSerial) {
  for (const LayerCase& test : layer_cases()) {
    const LayerResult serial = run_layer_on(test, 1, 1);
    for (const auto& [expert_ranks, replicas] :
         {std::pair{2, 1}, std::pair{1, 2}, std::pair{3, 1}, std::pair{2, 2}, std::pair{4, 1}}) {
      const LayerResult parallel = run_layer_on(test, expert_ranks, replicas);
      const testing::Difference worst = difference(parallel, serial);
      EXPECT_LT(worst.value, 1e-12)
          << test.name << " on " << expert_ranks << " x " << replicas << ": " << worst.where;
      // Choices and what survives are equal, not close: the sums but for entropy and losses.
      EXPECT_TRUE(torch::equal(parallel.stats.narrow(0, 0, 7), serial.stats.narrow(0, 0, 7)))
          << test.name << " on " << expert_ranks << " x " << replicas;
      EXPECT_TRUE(torch::allclose(parallel.stats, serial.stats, 1e-12, 1e-12));
    }
  }
}

TEST(MoeLayerRanks, ExpertsAndRanksWithoutTokensTakePart) {
  // Two samples of one token each and 16 experts: most experts see nothing, and with four ranks one
  // rank has no samples.
  LayerCase test{"sparse", layer_options({"top_k", ScoreOptions{1, RouterNoise::kGaussian, {}}}, {},
                                         {{"importance", ScopeKind::kGlobal}}, 16)};
  test.num_samples = 2;
  test.samples_per_group = 1;
  test.rows_per_sample = 1;
  const LayerResult serial = run_layer_on(test, 1, 1);
  for (const int64_t expert_ranks : {2, 3, 4}) {
    const testing::Difference worst = difference(run_layer_on(test, expert_ranks, 1), serial);
    EXPECT_LT(worst.value, 1e-12) << expert_ranks << ": " << worst.where;
  }
  int64_t zero_grads = 0;
  for (const auto& [name, tensor] : serial.tensors) {
    if (name.find("fc1.weight") != std::string::npos && tensor.abs().max().item<double>() == 0.0) {
      ++zero_grads;
    }
  }
  EXPECT_GE(zero_grads, 14);
}

TEST(MoeLayerRanks, MoreRanksThanExpertsIsFine) {
  LayerCase test{"two experts", layer_options({"top_k", ScoreOptions{2, RouterNoise::kNone, {}}},
                                              {}, {{"importance", ScopeKind::kGroup}}, 2)};
  const testing::Difference worst = difference(run_layer_on(test, 4, 1), run_layer_on(test, 1, 1));
  EXPECT_LT(worst.value, 1e-12) << worst.where;
}

TEST(MoeLayerRanks, EveryRankMakesTheSameCalls) {
  LayerCase test = layer_cases()[3];
  for (const bool has_lengths : {false, true}) {
    if (has_lengths) test.lengths.assign(static_cast<size_t>(test.num_samples), 3);
    std::vector<uint64_t> hashes(4);
    std::vector<int64_t> exchanges(4);
    testing::run_grid(4, 1, [&](RankGrid& grid) {
      const auto rank = static_cast<size_t>(grid.world->rank());
      // Only the first rank has samples.
      testing::run_layer(test, 0, rank == 0 ? test.num_samples : 0, grid);
      hashes[rank] = grid.world->counters().order->hash;
      exchanges[rank] = grid.expert->counters().all_to_all;
    });
    EXPECT_THAT(hashes, ::testing::Each(hashes[0]));
    // Counts, then rows, with their weights, there and back, forward and backward.
    EXPECT_THAT(exchanges, ::testing::Each(5));
  }
}

}  // namespace
}  // namespace shoal
