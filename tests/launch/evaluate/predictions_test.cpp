#include "launch/evaluate/predictions.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "launch/data/recipe_source.h"
#include "moe/moe_layer.h"
#include "moe/routing/router.h"
#include "tests/support/config_error.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_fill.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Overrides = std::vector<std::string>;
using Places = std::vector<int64_t>;

constexpr int64_t kSamples = 11;  // of the recipe's validation split

/// Some samples of a set, in this order.
class ChosenSamples final : public SampleSet {
 public:
  ChosenSamples(std::unique_ptr<const SampleSet> all, Places places)
      : all_(std::move(all)), places_(std::move(places)) {}
  int64_t size() const override { return std::ssize(places_); }
  Sample read(int64_t index, int64_t epoch) const override {
    return all_->read(places_[static_cast<size_t>(index)], epoch);
  }
  std::string name(int64_t index) const override { return fmt::format("{}.png", index); }

 private:
  std::unique_ptr<const SampleSet> all_;
  Places places_;
};

Places all_places() {
  Places places(kSamples);
  std::iota(places.begin(), places.end(), 0);
  return places;
}

/// A filled model with some samples of the validation split.
struct EvaluatedApart {
  EvaluatedApart(RankGrid& grid, const Overrides& overrides, const Places& places)
      : grid(grid), recipe(testing::equality_recipe(overrides)) {
    data = open_split(make_source(recipe), Split::kValid);
    data.samples = std::make_unique<ChosenSamples>(std::move(data.samples), places);
    model = testing::model_on(recipe, data, grid);
    testing::fill_parameters(*model.task);
  }
  EvaluationParts parts() { return {*model.task, recipe, data, grid}; }
  /// Rows of an output of the task, each sample apart.
  torch::Tensor apart(const std::function<torch::Tensor(const Batch&, const EvalOutput&)>& row_of) {
    torch::Tensor rows;
    int64_t first = 0;
    EvaluationParts own = parts();
    own.each_batch = [&](const auto& place_b, const Batch& batch, const EvalOutput& output) {
      const int64_t count = batch.context.samples_in_micro;
      const torch::Tensor own_B =
          gather_rows(row_of(batch, output), place_b, first, count, *grid.world);
      rows = first == 0 ? own_B : torch::cat({rows, own_B});
      first += count;
    };
    evaluate(own, 0);
    return rows;
  }
  torch::Tensor probabilities() {
    return apart([](const Batch&, const EvalOutput& output) { return output.probability_bN; });
  }

  RankGrid& grid;
  Recipe recipe;
  OpenSplit data;
  BuiltModel model;
};

torch::Tensor apart_alone(const Overrides& overrides, const Places& places) {
  RankGrid grid = testing::self_grid();
  return EvaluatedApart(grid, overrides, places).probabilities();
}

/// Probabilities as a periodic evaluation has them, in routing groups of train.group samples.
torch::Tensor in_groups(const Overrides& overrides) {
  RankGrid grid = testing::self_grid();
  EvaluatedApart own(grid, overrides, all_places());
  EvalLoader loader(*own.data.samples, loader_settings(own.recipe, own.data, grid));
  std::vector<torch::Tensor> rows;
  while (const auto batch = loader.next()) {
    rows.push_back(own.model.task->evaluate(*batch).probability_bN);
  }
  return torch::cat(rows);
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() ? (a - b).abs().max().item<double>() : 1.0;
}

/// Keys of each router under which it does in evaluation what it can do at most.
std::string router_keys(const std::string& name) {
  const std::string keys = name == "importance_score" ? ", eval_drop: 0.4" : "";
  return fmt::format("{{name: {}, k: 2{}}}", name, keys);
}

/// Recipes in which this router has to choose: of images, and of sequences of several lengths.
/// Gates by a threshold: among equal tokens of a sequence, top-k gates choose by rounding.
std::vector<Overrides> models_with(const std::string& router) {
  const std::string keys = router_keys(router);
  const auto stage = [&](const char* name) {
    return fmt::format("model.sparse.{}={{router: {}, experts: {{count: 5, hidden: 6}}}}", name,
                       keys);
  };
  const std::string moe =
      fmt::format("moe: {{router: {}, experts: {{count: 5, hidden: 6}}}}", keys);
  const std::string samples = fmt::format("data.valid.samples={}", kSamples);
  return {{stage("channel_moe"), stage("token_moe")},
          testing::joined(testing::with_hspmn(testing::expressions("mean"), "rate: 0.4",
                                              "causal: false, " + moe),
                          {samples})};
}

/// Where predictions of samples apart differ by more than rounding.
std::vector<std::string> differences_of(const Overrides& overrides) {
  std::vector<std::string> found;
  const torch::Tensor expected = apart_alone(overrides, all_places());
  const auto check = [&](const std::string& what, const torch::Tensor& got,
                         const torch::Tensor& wanted) {
    const double by = distance(got, wanted);
    if (by >= 1e-12) found.push_back(fmt::format("{}: {}", what, by));
  };
  check("other batches", apart_alone(testing::joined(overrides, {"train.batch=4"}), all_places()),
        expected);
  for (const int64_t i : {int64_t{0}, int64_t{3}, kSamples - 1}) {
    check(fmt::format("sample {} alone", i), apart_alone(overrides, {i}), expected.narrow(0, i, 1));
  }
  check("another order", apart_alone(overrides, {9, 1, 4}),
        expected.index_select(0, torch::tensor({9, 1, 4}, torch::kInt64)));
  for (const auto& [expert_ranks, replicas] : {std::pair{2, 1}, {1, 3}, {3, 1}}) {
    testing::run_grid(expert_ranks, replicas, [&](RankGrid& grid) {
      const torch::Tensor got = EvaluatedApart(grid, overrides, all_places()).probabilities();
      if (grid.world->rank() > 0) return;
      check(fmt::format("{} x {} ranks", expert_ranks, replicas), got, expected);
    });
  }
  return found;
}

TEST(PredictionsRanks, DependOnNoOtherSampleByAnyRouter) {
  for (const std::string& router : members_of<Router>().names()) {
    for (const Overrides& overrides : models_with(router)) {
      EXPECT_THAT(differences_of(overrides), IsEmpty()) << router;
    }
  }
}

TEST(PredictionsRanks, DependOnNoOtherSampleInNexusLayers) {
  EXPECT_THAT(differences_of({testing::vit(testing::kBlockNexus)}), IsEmpty());
}

TEST(Predictions, OfOtherSamplesDependOnlyInGroupsAndAsTheRouterSays) {
  for (const std::string& router : members_of<Router>().names()) {
    const Overrides overrides = models_with(router).front();
    RankGrid grid = testing::self_grid();
    const EvaluatedApart own(grid, overrides, {0});
    const auto layer = std::dynamic_pointer_cast<MoeLayer>(own.model.stages.front());
    ASSERT_NE(layer, nullptr);
    const double by = distance(in_groups(overrides), apart_alone(overrides, all_places()));
    EXPECT_EQ(layer->router().depends_on_other_samples(), by > 1e-6) << router << ": " << by;
  }
}

TEST(PredictionsRanks, OfADenoiserDependOnNoOtherImage) {
  for (const char* mixing : {"mixing: soft", "mixing: hard", "mixing: hard_shared_kv"}) {
    const Overrides overrides = testing::denoiser(mixing);
    const auto restored_on = [&](RankGrid& grid, const Places& places) {
      EvaluatedApart own(grid, overrides, places);
      return own.apart(
          [&](const Batch& batch, const EvalOutput&) { return own.model.task->restored(batch); });
    };
    RankGrid alone = testing::self_grid();
    const torch::Tensor expected = restored_on(alone, all_places());
    EXPECT_LT(distance(restored_on(alone, {7}), expected.narrow(0, 7, 1)), 1e-12) << mixing;
    testing::run_grid(3, 1, [&](RankGrid& grid) {
      EXPECT_LT(distance(restored_on(grid, all_places()), expected), 1e-12) << mixing;
    });
  }
}

TEST(PredictionsRanks, AreCollectedInOrderOnTheFirst) {
  const torch::Tensor expected = apart_alone({}, all_places());
  testing::run_grid(1, 3, [&](RankGrid& grid) {
    EvaluatedApart own(grid, {}, all_places());
    Predictions got;
    EvaluationParts parts = own.parts();
    parts.each_batch = collect_predictions(parts, got);
    const Evaluation evaluation = evaluate(parts, 0);
    EXPECT_EQ(evaluation.samples, kSamples);
    if (grid.world->rank() > 0) {
      EXPECT_TRUE(got.guesses.empty() && got.lines.empty());
      return;
    }
    ASSERT_EQ(std::ssize(got.guesses), kSamples);
    int64_t right = 0;
    for (int64_t i = 0; i < kSamples; ++i) {
      const auto& [label, predicted, probability] = got.guesses[static_cast<size_t>(i)];
      EXPECT_EQ(static_cast<int64_t>(predicted), expected[i].argmax().item<int64_t>());
      EXPECT_NEAR(probability, expected[i].max().item<double>(), 1e-12);
      right += label == predicted ? 1 : 0;
    }
    EXPECT_NEAR(evaluation.value("top1"), static_cast<double>(right) / kSamples, 1e-12);
    EXPECT_THAT(got.lines, HasSubstr("{\"sample\":10,\"file\":\"10.png\",\"label\":"));
  });
}

TEST(Predictions, NameSamplesByTheirPlaceInTheSplit) {
  RankGrid grid = testing::self_grid();
  EvaluatedApart own(grid, {}, all_places());
  own.data = open_valid(testing::equality_recipe({"evaluate.samples=2"}), own.data.source);
  Predictions got;
  EvaluationParts parts = own.parts();
  parts.each_batch = collect_predictions(parts, got);
  evaluate(parts, 0);
  const int64_t first = own.data.samples->place(0), last = own.data.samples->place(1);
  EXPECT_GT(last, 1);
  EXPECT_THAT(got.lines, HasSubstr(fmt::format("{{\"sample\":{},", first)));
  EXPECT_THAT(got.lines, HasSubstr(fmt::format("\n{{\"sample\":{},", last)));
  const auto json = count_confusions({{0, 0, 0.9}, {1, 2, 0.8}}, own.data);
  EXPECT_EQ(json["mistakes"][0].value("sample", int64_t{-1}), last);
}

TEST(Predictions, CountsAreThoseOfScikitLearnsExample) {
  // sklearn.metrics.confusion_matrix's documentation: y_true = [2, 0, 2, 2, 0, 1], y_pred =
  // [0, 0, 2, 2, 0, 2] gives [[2, 0, 0], [0, 0, 1], [1, 0, 2]].
  RankGrid grid = testing::self_grid();
  const EvaluatedApart own(grid, {}, all_places());
  const auto json = count_confusions(
      {{2, 0, 0.4}, {0, 0, 0.9}, {2, 2, 0.9}, {2, 2, 0.9}, {0, 0, 0.9}, {1, 2, 0.8}}, own.data);
  EXPECT_EQ(json["matrix"].dump(), "[[2,0,0],[0,0,1],[1,0,2]]");
  const auto numbers = [&](const char* key) {
    std::vector<double> values;
    for (const auto& row : json["classes"]) values.push_back(row[key]);
    return values;
  };
  EXPECT_EQ(numbers("samples"), (std::vector<double>{2, 1, 3}));
  EXPECT_EQ(numbers("recall"), (std::vector<double>{1.0, 0.0, 2.0 / 3}));
  EXPECT_EQ(numbers("precision"), (std::vector<double>{2.0 / 3, 0.0, 2.0 / 3}));
  EXPECT_EQ(numbers("f1"), (std::vector<double>{0.8, 0.0, 2.0 / 3}));
  ASSERT_EQ(json["worst"].size(), 2u);
  EXPECT_EQ(json["worst"][0].value("label", -1), 1);  // as frequent as the other
  ASSERT_EQ(json["mistakes"].size(), 2u);
  EXPECT_EQ(json["mistakes"][0].value("file", ""), "5.png");  // the surer one
  EXPECT_EQ(json["mistakes"][1].value("sample", -1), 0);
}

TEST(Predictions, AreOfTheMostProbableClassesTiesByNumber) {
  const torch::Tensor probability_N = torch::tensor({0.1, 0.4, 0.1, 0.4}, torch::kFloat64);
  EXPECT_EQ(top_classes(probability_N, 3, {}).dump(),
            R"([{"class":1,"probability":0.4},{"class":3,"probability":0.4},)"
            R"({"class":0,"probability":0.1}])");
  EXPECT_EQ(top_classes(probability_N, 9, {"a", "b", "c", "d"})[3]["name"], "c");
}

TEST(Predictions, AreRefusedByTheNameOfATaskWithoutClasses) {
  RankGrid grid = testing::self_grid();
  const EvaluatedApart denoiser(grid, testing::denoiser("mixing: soft"), {0});
  EXPECT_THAT(testing::config_error_of(
                  [&] { require_classifier(*denoiser.model.task, denoiser.recipe, "predict"); }),
              HasSubstr("task.name: predict needs a task that predicts classes, and denoise"));
}

}  // namespace
}  // namespace shoal
