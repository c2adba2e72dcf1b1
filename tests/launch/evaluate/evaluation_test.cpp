#include "launch/evaluate/evaluation.h"
#include "launch/data/recipe_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launch/step/session.h"
#include "models/backbone.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_fill.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

/// Evaluates 11 images in two batches, on this grid.
Evaluation evaluate_on(RankGrid& grid, const std::vector<std::string>& overrides,
                       int64_t most_pictures = 0) {
  const Recipe recipe = testing::equality_recipe(overrides);
  const auto source = make_source(recipe);
  const auto data = open_split(source, Split::kTrain), valid = open_valid(recipe, source);
  const auto sets = open_sets(recipe, make_set_sources(recipe, *source));
  Session session(recipe, testing::model_on(recipe, data, grid), data, grid);
  testing::fill_parameters(session.task());
  return evaluate({session.task(), recipe, valid, grid, nullptr, most_pictures, {}, sets}, 0);
}

TEST(Evaluation, TellsHowTheWholeSplitWasRouted) {
  RankGrid grid = testing::self_grid();
  const Evaluation evaluation = evaluate_on(grid, {testing::vit(testing::kBlockExperts)});
  ASSERT_EQ(evaluation.moe.size(), 1u);  // every second block has experts
  EXPECT_EQ(evaluation.moe[0].tokens, 11 * 5);
  const auto json = to_json(evaluation);
  EXPECT_DOUBLE_EQ(json["moe_mutual_information"], evaluation.moe[0].mutual_information.value());
  const auto layers = routing_json(evaluation.moe);
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0]["layer"], "blocks.1.moe");
  EXPECT_EQ(layers[0]["mutual_information"], json["moe_mutual_information"]);
  double share = 0.0;
  for (const auto& own : layers[0]["load_share"]) share += own.get<double>();
  EXPECT_NEAR(share, 1.0, 1e-12);
  EXPECT_EQ(layers[0]["mean_score"].size(), 5u);
  EXPECT_FALSE(layers[0].contains("multiply_adds_per_token"));
  EXPECT_THAT(routing_text(evaluation.moe), HasSubstr("blocks.1.moe: 0="));
}

TEST(Evaluation, LeavesOutWhatRoutersDoNotScore) {
  RankGrid grid = testing::self_grid();
  const Evaluation evaluation = evaluate_on(grid, {testing::vit(testing::kHashedExperts)});
  EXPECT_FALSE(to_json(evaluation).contains("moe_mutual_information"));
  EXPECT_FALSE(routing_json(evaluation.moe)[0].contains("mutual_information"));
  EXPECT_EQ(routing_json(evaluation.moe)[0]["load_share"].size(), 5u);
  const Evaluation dense = evaluate_on(grid, {testing::vit()});
  EXPECT_TRUE(dense.moe.empty());
  EXPECT_FALSE(to_json(dense).contains("moe_mutual_information"));
}

TEST(Evaluation, SetsMemoryUnitsApartFromExperts) {
  RankGrid grid = testing::self_grid();
  const Evaluation nexus = evaluate_on(grid, {testing::vit(testing::kBlockNexus)});
  ASSERT_FALSE(nexus.moe.empty());
  EXPECT_EQ(nexus.moe[0].num_memory_units, 2);
  EXPECT_EQ(routing_json(nexus.moe)[0]["memory_units"], 2);
  EXPECT_THAT(routing_text(nexus.moe), HasSubstr("; memory units "));
  const Evaluation memory = evaluate_on(
      grid, {"model.sparse.channel_moe.experts={kind: memory, count: 5, keys: 7, k: 2}"});
  EXPECT_EQ(memory.moe[0].num_memory_units, 0);
  EXPECT_EQ(memory.moe[1].num_memory_units, 5);
  EXPECT_THAT(routing_text(memory.moe), HasSubstr("moe_c: memory units 0="));
}

TEST(EvaluationRanks, RouteTheSplitAsOneRankDoes) {
  for (const std::string& model : {testing::kBlockExperts, testing::kBlockNexus}) {
    RankGrid alone = testing::self_grid();
    const Evaluation serial = evaluate_on(alone, {testing::vit(model)});
    for (const auto& [expert_ranks, replicas] : {std::pair{2, 1}, {1, 2}, {2, 2}}) {
      testing::run_grid(expert_ranks, replicas, [&](RankGrid& grid) {
        const Evaluation parallel = evaluate_on(grid, {testing::vit(model)});
        ASSERT_EQ(parallel.moe.size(), serial.moe.size());
        for (size_t layer = 0; layer < serial.moe.size(); ++layer) {
          const MoeReport &own = parallel.moe[layer], &expected = serial.moe[layer];
          EXPECT_EQ(own.tokens, expected.tokens);
          EXPECT_EQ(own.load_U, expected.load_U);
          EXPECT_NEAR(own.mutual_information.value(), expected.mutual_information.value(), 1e-12);
          for (size_t u = 0; u < own.mean_score_U.size(); ++u) {
            EXPECT_NEAR(own.mean_score_U[u], expected.mean_score_U[u], 1e-12);
          }
        }
      });
    }
  }
}

std::vector<std::string> names_in(const Evaluation& evaluation) {
  std::vector<std::string> names;
  for (const Metric& metric : evaluation.metrics) names.push_back(metric.name);
  return names;
}

/// Metrics, one after the other.
std::vector<double> values_in(const Evaluation& evaluation) {
  std::vector<double> values;
  for (const Metric& metric : evaluation.metrics) values.push_back(metric.value);
  return values;
}

TEST(Evaluation, OfSomeSamplesIsTheSameEachTime) {
  RankGrid grid = testing::self_grid();
  const Evaluation some = evaluate_on(grid, {"evaluate.samples=5"});
  EXPECT_EQ(some.samples, 5);
  EXPECT_EQ(values_in(some), values_in(evaluate_on(grid, {"evaluate.samples=5"})));
  EXPECT_NE(some.value("loss"), evaluate_on(grid, {}).value("loss"));
  EXPECT_NE(some.value("loss"),
            evaluate_on(grid, {"evaluate.samples=5", "run.seed=2"}).value("loss"));
  const Evaluation all = evaluate_on(grid, {"evaluate.samples=100"});
  EXPECT_EQ(all.samples, 11);
  EXPECT_EQ(values_in(all), values_in(evaluate_on(grid, {})));
}

TEST(Evaluation, OfSomeWindowsKeepsTheBytesOfATokenOfTheText) {
  RankGrid grid = testing::self_grid();
  const Evaluation all = evaluate_on(grid, testing::gpt2());
  const Evaluation some =
      evaluate_on(grid, testing::joined(testing::gpt2(), {"evaluate.samples=7"}));
  EXPECT_EQ(some.samples, 7);
  EXPECT_EQ(some.value("tokens"), 7 * 6);
  EXPECT_NE(some.value("loss"), all.value("loss"));
  EXPECT_NEAR(some.value("bits_per_byte") / some.value("loss"),
              all.value("bits_per_byte") / all.value("loss"), 1e-12);
}

TEST(Evaluation, SaysHowSamplesWereDrawn) {
  const auto note = [](const std::string& override) {
    const Recipe recipe = testing::equality_recipe({override});
    return describe_draw(open_valid(recipe, make_source(recipe)));
  };
  EXPECT_EQ(note("evaluate.samples=all"), "");
  EXPECT_EQ(note("evaluate.samples=5"), "5 of 11 samples, drawn by run.seed (evaluate.samples)");
  EXPECT_EQ(note("evaluate.samples=12"), "11 of 11 samples; evaluate.samples asks for no fewer");
}

TEST(Evaluation, AddsTheMetricsOfSets) {
  RankGrid grid = testing::self_grid();
  const Evaluation with_sets =
      evaluate_on(grid, {"evaluate.sets={same: {}, noisy: {noise: 0.5, valid: {samples: 9}}}"});
  EXPECT_THAT(names_in(with_sets),
              ::testing::ElementsAre("loss", "top1", "top5", "same.loss", "same.top1", "same.top5",
                                     "same.samples", "noisy.loss", "noisy.top1", "noisy.top5",
                                     "noisy.samples"));
  EXPECT_EQ(with_sets.samples, 11);
  EXPECT_EQ(with_sets.value("same.loss"), with_sets.value("loss"));
  EXPECT_EQ(with_sets.value("noisy.samples"), 9);
  const Evaluation noisy = evaluate_on(grid, {"data.noise=0.5", "data.valid.samples=9"});
  EXPECT_EQ(with_sets.value("noisy.loss"), noisy.value("loss"));
  EXPECT_NE(with_sets.value("noisy.loss"), with_sets.value("loss"));
  EXPECT_THROW(with_sets.value("noisy.psnr"), DataError);
}

TEST(EvaluationRanks, EvaluateTheSameSamplesAndSets) {
  const std::vector<std::string> overrides{"evaluate.samples=5", "evaluate.sets.noisy.noise=0.5"};
  RankGrid alone = testing::self_grid();
  const Evaluation serial = evaluate_on(alone, overrides);
  for (const auto& [expert_ranks, replicas] : {std::pair{2, 1}, {1, 3}}) {
    testing::run_grid(expert_ranks, replicas, [&](RankGrid& grid) {
      const Evaluation parallel = evaluate_on(grid, overrides);
      EXPECT_EQ(names_in(parallel), names_in(serial));
      for (size_t i = 0; i < serial.metrics.size(); ++i) {
        EXPECT_NEAR(parallel.metrics[i].value, serial.metrics[i].value, 1e-12);
      }
    });
  }
}

const std::vector<std::string> kDenoiser{
    "model={backbone: vit, patch: 4, width: 8, depth: 1, heads: 2, hidden: 8, pool: mean}",
    "task={name: denoise}", "data.normalise={mean: [0, 0, 0], std: [1, 1, 1]}",
    "data.valid.samples=5"};

TEST(Evaluation, DrawsWhatItsNumbersAreOf) {
  RankGrid grid = testing::self_grid();
  const Evaluation all = evaluate_on(grid, kDenoiser, 100);
  ASSERT_EQ(all.pictures.size(), 4u);
  EXPECT_EQ(all.pictures[2].name, "restored");
  EXPECT_EQ(all.pictures[2].image_bCHW.size(0), 5);
  EXPECT_NEAR(all.pictures[2].number_b.mean().item<double>(), all.value("psnr"), 1e-9);
  const Evaluation some = evaluate_on(grid, kDenoiser, 2);
  EXPECT_TRUE(some.pictures[1].image_bCHW.equal(all.pictures[1].image_bCHW.narrow(0, 0, 2)));
  EXPECT_EQ(some.value("psnr"), all.value("psnr"));
  EXPECT_TRUE(evaluate_on(grid, kDenoiser).pictures.empty());
  EXPECT_TRUE(evaluate_on(grid, {}, 100).pictures.empty());  // a classifier
}

TEST(EvaluationRanks, DrawTheSamePictures) {
  RankGrid alone = testing::self_grid();
  const Evaluation serial = evaluate_on(alone, kDenoiser, 4);
  testing::run_grid(1, 3, [&](RankGrid& grid) {
    const Evaluation parallel = evaluate_on(grid, kDenoiser, 4);
    ASSERT_EQ(parallel.pictures.size(), serial.pictures.size());
    for (size_t i = 0; i < serial.pictures.size(); ++i) {
      const PictureColumn &own = parallel.pictures[i], &expected = serial.pictures[i];
      EXPECT_TRUE(own.image_bCHW.allclose(expected.image_bCHW, 0, 1e-6)) << expected.name;
      ASSERT_EQ(own.number_b.defined(), expected.number_b.defined());
      if (!own.number_b.defined()) continue;
      EXPECT_TRUE(own.number_b.allclose(expected.number_b, 0, 1e-9)) << expected.name;
    }
  });
}

}  // namespace
}  // namespace shoal
