#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "launch/check/check_recipe.h"
#include "launch/check/memory_estimate.h"
#include "launch/check/recipe_notes.h"
#include "launch/new_recipe/new.h"
#include "launch/recipe/resume_rules.h"
#include "moe/routing/capacity.h"
#include "moe/routing/router.h"
#include "tests/support/collected_problems.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/train_run.h"

/// A router, a balance loss, a source, a backbone, a task and an optimizer, each registered by one
/// file beside this one and named nowhere else: the program trains, resumes, checks and counts them
/// and writes first recipes with them.
namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr const char* kMembers = R"(
data: {source: stripes}
model:
  backbone: single_row
  moe:
    router: {name: cosine}
    losses: [{name: even_squares, weight: 0.1}]
    experts: {count: 4, hidden: 6}
task: {name: stripes_task}
optimizer: {name: signed, lr: 0.01}
schedule: {name: constant}
train: {duration: 12step, batch: 16, group: 2, precision: float64, log_every: 1step}
evaluate: {every: 4step}
checkpoint: {every: 4step}
parallel: {expert_ranks: 2}
)";

Recipe recipe_with(const std::vector<std::string>& keys) {
  return config::load_options_text<Recipe>(kMembers, "members", {"", keys, nullptr}).options;
}

CheckedRecipe checked(const std::string& text) {
  return check_recipe({"members", {}, {}, text}, config::UnsetVariable::kRefuse, std::nullopt);
}

struct MembersRun {
  testing::ScratchFolder scratch;
  std::string folder = scratch.file("run");

  /// Trains on two expert ranks, from the newest checkpoint if there is one.
  testing::RunEnd train(const std::vector<std::string>& keys = {}) const {
    const Recipe recipe = recipe_with(keys);
    testing::RunEnd of_rank_0;
    const StopSignals signals;
    testing::run_grid(2, 1, [&](RankGrid& grid) {
      const testing::RunEnd end = testing::train_run(recipe, folder, grid, signals);
      if (grid.world->rank() == 0) of_rank_0 = end;
    });
    return of_rank_0;
  }
};

TEST(MembersRanks, TrainAndResumeToTheBit) {
  const MembersRun whole, resumed;
  const testing::RunEnd expected = whole.train();
  EXPECT_EQ(expected.result.last_step, 12);
  const std::map<int64_t, double> scores = testing::evaluations(whole.folder, "square");
  ASSERT_EQ(scores.size(), 3u);
  EXPECT_LT(scores.at(12), scores.at(4));
  EXPECT_EQ(resumed.train({"run.stop_after=5step"}).result.last_step, 5);
  const testing::RunEnd end = resumed.train({"data.cache=elsewhere"});
  EXPECT_EQ(end.result.first_step, 5);
  EXPECT_EQ(end.digest, expected.digest);
  EXPECT_THROW(resumed.train({"data.phase=1"}), Error);
}

TEST(Members, SayWhichOfTheirKeysMayChangeOnAResume) {
  const auto warned = [](const std::string& key) {
    std::vector<std::string> paths;
    for (const ChangedKey& changed :
         check_resume(differences_of(recipe_with({}), recipe_with({key})), false)) {
      paths.push_back(changed.path + (changed.rules.resume.changes_scores ? " of scores" : ""));
    }
    return paths;
  };
  EXPECT_THAT(warned("data.cache=elsewhere"), IsEmpty());
  EXPECT_THAT(warned("data.valid.samples=8"), ElementsAre("data.valid.samples of scores"));
  EXPECT_THAT(warned("optimizer.momentum=0.5"), ElementsAre("optimizer.momentum"));
  for (const char* key : {"data.train.samples=8", "model.width=4", "model.moe.router.k=2",
                          "model.moe.losses[0].weight=1"}) {
    EXPECT_THROW(warned(key), Error) << key;
  }
}

TEST(Members, AreChecked) {
  const CheckedRecipe recipe = checked(kMembers);
  const ModelCounts& counts = recipe.counts;
  constexpr int64_t kExpert = 8 * 6 + 6 + 6 * 8 + 8, kDense = 16 * 8 + 8 + 8 * 4 + 8 * 2 + 2;
  EXPECT_EQ(counts.parameters, kDense + 4 * kExpert);
  EXPECT_EQ(counts.active_parameters, kDense + kExpert);
  EXPECT_EQ(counts.parameters_headless, counts.parameters - (8 * 2 + 2));
  ASSERT_EQ(counts.stages.size(), 1u);
  EXPECT_EQ(counts.stages[0].unbalanced, "");
  constexpr int64_t kTrained = (kDense + 2 * kExpert) * int64_t{sizeof(double)};
  EXPECT_THAT(estimate_memory(recipe, 2).classes, AllOf(Contains(Pair("gradients", kTrained)),
                                                        Contains(Pair("optimizer", 2 * kTrained))));
  EXPECT_THAT(recipe_notes(recipe), Contains(HasSubstr("all weights have the same age")));
}

TEST(Members, StandInFirstRecipes) {
  EXPECT_THAT(new_recipe_backbones(), Contains("single_row"));
  EXPECT_THAT(new_recipe_sources("vit"), Contains("stripes"));
  for (const int64_t experts : {0, 4}) {
    std::ostringstream text;
    new_recipe({.backbone = "single_row", .experts = experts, .data = "stripes"}, text);
    const CheckedRecipe recipe = checked(text.str());
    EXPECT_EQ(recipe.loaded.options.task.name(), "stripes_task");
    EXPECT_EQ(recipe.counts.stages.size(), experts > 0 ? 1u : 0u);
    EXPECT_EQ(recipe.source->shape().source, "stripes");
  }
}

TEST(Members, AreNamedByTheMessagesOfOthers) {
  const auto router =
      Registry<Router>::create(Choice<Router>("expert_choice"),
                               {.width = 8, .num_units = 4, .tensor_options = torch::kFloat64});
  testing::CollectedProblems problems;
  check_causality(*router, "expert_choice", Capacity{}, problems);
  EXPECT_THAT(problems.lines, ElementsAre(HasSubstr("cosine with looks_ahead false")));
}

TEST(Members, AreCounted) {
  const CheckedRecipe recipe = checked(kMembers);
  ASSERT_TRUE(recipe.counts.work.has_value());
  EXPECT_EQ(recipe.counts.work->multiply_adds, 16 * 8 + 8 * 4 + 2 * 8 * 6 + 8 * 2);
}

}  // namespace
}  // namespace shoal
