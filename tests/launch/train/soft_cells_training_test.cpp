#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launch/data/recipe_source.h"
#include "launch/model/model_weights.h"
#include "parallel/checkpoint/state_list.h"
#include "parallel/gradients/weight_average.h"
#include "sparse/layers/soft_cells.h"
#include "sparse/sparse_model.h"
#include "tests/support/config_error.h"
#include "tests/support/model_on.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/session_in_training.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::loading_error;
using testing::mistakes_of;
using testing::save;
using testing::SessionInTraining;

const std::string kSmallVit = testing::vit();

const torch::Tensor& mask_of(const SessionInTraining& run) {
  return run.session.model().sparse->masks().mask(0);
}

/// Undefined ones are equal as well.
bool are_equal(const torch::Tensor& a, const torch::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || a.equal(b));
}

TEST(SoftCellsInTraining, SoftCellsAreChosenInTimeAndTheirScoresAreGone) {
  SessionInTraining run(
      {kSmallVit, testing::sparse_by_choice("diagonal", "layers: [mlp]"), "optimizer.name=adamw"});
  const auto& cells = run.session.model().sparse->forms().soft_cells;
  const SparseMasks& masks = run.session.model().sparse->masks();
  ASSERT_EQ(cells.size(), 4u);
  for (int step = 0; step < 5; ++step) {
    for (size_t l = 0; l < cells.size(); ++l) {
      const torch::Tensor& mask = masks.mask(l);
      const int64_t on = cells[l]->layer().pattern->num_weights();
      EXPECT_EQ(cells[l]->is_soft(), step < 3);
      const torch::Tensor weight = cells[l]->layer().parameter.tensor;
      EXPECT_EQ(mask.defined(), step >= 3);
      if (mask.defined()) {
        EXPECT_EQ(mask.sum().item<int64_t>(), on);
      }
      EXPECT_EQ(weight.count_nonzero().item<int64_t>(), step < 3 ? weight.numel() : on);
    }
    EXPECT_TRUE(run.session.step({}).applied);
  }
  EXPECT_NO_THROW(run.session.model().sparse->require_masks_fit());
}

TEST(SoftCellsInTraining, SoftCellsAreChosenOnceTheOthersHaveNextToNothing) {
  SessionInTraining run(
      {kSmallVit,
       "sparsity={density: 0.4, pattern: {name: diagonal}, rule: {name: soft_top_k, "
       "check_every: 2step, threshold: 2, until: 100%}}"});
  run.session.step({});
  EXPECT_TRUE(run.session.model().sparse->forms().soft_cells[0]->is_soft());
  run.session.step({});
  EXPECT_FALSE(run.session.model().sparse->forms().soft_cells[0]->is_soft());
}

TEST(SoftCellsInTraining, SoftCellsStaySoftWhileTheOthersHaveMuch) {
  SessionInTraining run(
      {kSmallVit,
       "sparsity={density: 0.4, pattern: {name: diagonal}, rule: {name: soft_top_k, "
       "check_every: 1step, threshold: 0, until: 80%}}"});
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ(run.session.model().sparse->forms().soft_cells[0]->is_soft(), step < 4) << step;
    EXPECT_EQ(run.session.model().sparse->has_soft_forms(), step < 4) << step;
    run.session.step({});
  }
}

TEST(SoftCellsInTraining, EstimatesHaveTheMomentsThatCheckpointsHave) {
  SessionInTraining run(
      {kSmallVit,
       "sparsity={density: 0.4, pattern: {name: diagonal}, rule: {name: soft_top_k, threshold: 0, "
       "until: 80%}, permutation: {name: learned, threshold: 0, until: 80%}}"});
  run.session.step({});
  const auto shapes_of = [](const std::vector<SafetensorsEntry>& entries) {
    std::vector<std::vector<int64_t>> shapes;
    for (const SafetensorsEntry& entry : entries) shapes.push_back(entry.shape);
    std::ranges::sort(shapes);
    return shapes;
  };
  ModelWeights weights = weights_of(run.session.model());
  std::vector<SafetensorsEntry> saved = list_state(run.session).entries();
  std::erase_if(saved, [](const SafetensorsEntry& entry) {
    const auto begins = [&](const char* prefix) { return entry.name.starts_with(prefix); };
    return !begins("sparsity.soft.m.") && !begins("sparsity.soft.v.") &&
           !begins("sparsity.cells.m.") && !begins("sparsity.cells.v.");
  });
  ASSERT_FALSE(saved.empty());
  EXPECT_EQ(shapes_of(SparseModel::moments_of(list_state(weights).entries())), shapes_of(saved));
}

TEST(SoftCellsInTraining, TheChoiceChangesAveragesAsTheWeights) {
  SessionInTraining run({kSmallVit, testing::sparse_by_choice("diagonal", "layers: [mlp]"),
                         "train.average={decay: 0.999, warmup: false}",
                         "optimizer={name: sgd, lr: "
                         "1e-30}"});
  for (int step = 0; step < 3; ++step) run.session.step({});
  const SparseLayer& layer = run.session.model().sparse->forms().soft_cells[0]->layer();
  ASSERT_FALSE(run.session.model().sparse->forms().soft_cells[0]->is_soft());
  const torch::Tensor weight = layer.parameter.tensor.detach(),
                      average = testing::find_rule<WeightAverage>(run.session.rules())
                                    ->average_of(layer.parameter.name);
  EXPECT_TRUE(average.allclose(weight, 1e-9, 1e-12)) << "weights did not move but by the choice";
}

// On one of two replicas.
TEST(SoftCellsInTrainingRanks, AGradientOfScoresThatIsNotFiniteSkipsTheStep) {
  for (const bool is_of_cells : {true, false}) {
    for (const char* sharded : {"false", "true"}) {
      const Recipe recipe = testing::equality_recipe(
          {kSmallVit,
           testing::sparse_by_choice("block, size: 2",
                                     "layers: [mlp], permutation: {name: learned, until: 80%}"),
           "optimizer.name=adamw", std::string("parallel.shard_optimizer=") + sharded});
      testing::run_grid(1, 2, [&](RankGrid& grid) {
        const auto data = open_split(make_source(recipe), Split::kTrain);
        Session session(recipe, testing::model_on(recipe, data, grid), data, grid);
        const auto digest = [&] { return state_digest(session, 0, 0, *grid.world); };
        bool is_bad = false;
        torch::Tensor scores = is_of_cells
                                   ? session.model().sparse->forms().soft_cells[1]->score()
                                   : session.model().sparse->forms().permutations[1]->soft();
        scores.register_hook([&is_bad](const torch::Tensor& gradient) {
          return is_bad ? gradient / 0.0 : gradient;
        });
        ASSERT_TRUE(session.step({}).applied);
        const std::string before = digest();
        is_bad = grid.world->rank() == 1;
        const StepOutcome outcome = session.step({});
        EXPECT_FALSE(outcome.applied);
        EXPECT_THAT(outcome.not_finite, HasSubstr("the gradient of backbone.blocks."));
        EXPECT_EQ(digest(), before);
        is_bad = false;
        EXPECT_TRUE(session.step({}).applied);
        EXPECT_NE(digest(), before);
      });
    }
  }
}

TEST(SoftCellsInTraining, CellsMayNotStaySoft) {
  EXPECT_THAT(mistakes_of([] {
                SessionInTraining(
                    {kSmallVit, testing::sparse_by_choice("diagonal", "layers: [mlp]", "6step")});
              }),
              ElementsAre(HasSubstr("sparsity.rule.until: step 6 is behind the end of the "
                                    "training, step 5")));
}

TEST(SoftCellsInTraining, SoftWeightsAreTakenWithTheirScoresOrNotAtAll) {
  const testing::ScratchFolder scratch;
  const std::string soft = testing::sparse_by_choice("diagonal", "layers: [mlp]");
  SessionInTraining trained({kSmallVit, soft});
  trained.session.step({});
  const std::string path = save(trained, scratch.path());
  SessionInTraining same({kSmallVit, soft, "model.init_from=" + path});
  load_initial_weights(same.session, same.recipe);
  EXPECT_TRUE(same.session.model().sparse->forms().soft_cells[0]->score().equal(
      trained.session.model().sparse->forms().soft_cells[0]->score()));
  SessionInTraining other({kSmallVit,
                           testing::sparse("diagonal", "set", "density: 0.4, layers: [mlp]"),
                           "model.init_from=" + path});
  EXPECT_THAT(loading_error(other), HasSubstr("are not chosen yet"));
}

TEST(SoftCellsInTraining, ScoresAndMasksGoWithWeightsThatAreTakenInPart) {
  const testing::ScratchFolder scratch;
  const std::string soft = testing::sparse_by_choice("diagonal", "layers: [mlp]");
  SessionInTraining trained({kSmallVit, soft});
  for (const bool is_chosen : {false, true}) {
    for (int step = 0; step < (is_chosen ? 3 : 1); ++step) trained.session.step({});
    const std::string path = save(trained, scratch.path());
    SessionInTraining next({kSmallVit, soft, "run.seed=7",
                            "model.init_from={from: " + path + ", take: ['backbone.*']}"});
    load_initial_weights(next.session, next.recipe);
    const auto &mine = next.session.model().sparse->forms().soft_cells,
               &theirs = trained.session.model().sparse->forms().soft_cells;
    ASSERT_EQ(mine[0]->is_soft(), !is_chosen);
    EXPECT_TRUE(is_chosen || mine[0]->score().equal(theirs[0]->score()));
    EXPECT_TRUE(are_equal(mask_of(next), mask_of(trained)));
    EXPECT_TRUE(mine[0]->layer().parameter.tensor.equal(theirs[0]->layer().parameter.tensor));
    EXPECT_TRUE(next.session.step({}).applied);
  }
}

TEST(SoftCellsInTraining, AMaskThatWasChosenStays) {
  const testing::ScratchFolder scratch;
  const std::string soft = testing::sparse_by_choice("diagonal", "layers: [mlp]");
  SessionInTraining trained({kSmallVit, soft});
  for (int step = 0; step < 4; ++step) trained.session.step({});
  const std::string path = save(trained, scratch.path());
  SessionInTraining next({kSmallVit, soft, "model.init_from=" + path});
  load_initial_weights(next.session, next.recipe);
  EXPECT_FALSE(next.session.model().sparse->forms().soft_cells[0]->is_soft());
  EXPECT_TRUE(are_equal(mask_of(next), mask_of(trained)));
  EXPECT_TRUE(next.session.step({}).applied);
}

}  // namespace
}  // namespace shoal
