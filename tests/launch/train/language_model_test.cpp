#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/options/config_reader.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/train_run.h"

namespace shoal {
namespace {

using Overrides = std::vector<std::string>;

/// A GPT-2 with experts and dropout in the trainer: batches of 12 windows.
struct LanguageRun {
  testing::ScratchFolder scratch;
  std::string folder = scratch.file("run");

  /// Trains on thread ranks, from the newest checkpoint if there is one; how rank 0 ended.
  testing::RunEnd train(int64_t expert_ranks, int64_t replicas, const Overrides& more = {}) const {
    const Recipe recipe = testing::equality_recipe(testing::joined(
        testing::joined(
            testing::gpt2(testing::kBlockExperts),
            {"train.batch=12", "train.group=1", "train.duration=8step",
             "optimizer={name: adamw, lr: 1e-3}", "evaluate.every=2step", "checkpoint.every=2step",
             "data.prefetch=0", "parallel.expert_ranks=" + std::to_string(expert_ranks)}),
        more));
    testing::RunEnd of_rank_0;
    const StopSignals signals;
    testing::run_grid(expert_ranks, replicas, [&](RankGrid& grid) {
      const testing::RunEnd end = testing::train_run(recipe, folder, grid, signals);
      if (grid.world->rank() == 0) of_rank_0 = end;
    });
    return of_rank_0;
  }
  std::map<int64_t, double> perplexities() const {
    return testing::evaluations(folder, "perplexity");
  }
};

TEST(LanguageModelRanks, ResumesToTheBit) {
  for (const auto& [expert_ranks, replicas] : {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {1, 2}}) {
    const LanguageRun whole, resumed;
    const testing::RunEnd expected = whole.train(expert_ranks, replicas);
    EXPECT_EQ(resumed.train(expert_ranks, replicas, {"run.stop_after=3step"}).result.last_step, 3);
    EXPECT_EQ(resumed.train(expert_ranks, replicas).digest, expected.digest);
  }
}

TEST(LanguageModelRanks, ResumesSequenceTasksToTheBit) {
  for (const Overrides& task :
       {testing::answers(testing::kBlockExperts),
        testing::expressions("last", testing::kBlockExperts),
        testing::with_hspmn(testing::answers(), "rate: 0.4", testing::kBlockExperts)}) {
    const LanguageRun whole, resumed;
    const testing::RunEnd expected = whole.train(2, 1, task);
    EXPECT_EQ(resumed.train(2, 1, testing::joined(task, {"run.stop_after=3step"})).result.last_step,
              3);
    EXPECT_EQ(resumed.train(2, 1, task).digest, expected.digest);
  }
}

TEST(LanguageModelRanks, GoesOnOnFewerAndFewerRanks) {
  for (const Overrides& model :
       {Overrides{}, testing::with_hspmn({}, "rate: 0.4", testing::kBlockExperts)}) {
    const LanguageRun serial, moved;
    serial.train(1, 1, model);
    const std::map<int64_t, double> expected = serial.perplexities();
    ASSERT_EQ(expected.size(), 4u);
    for (int64_t ranks = 4; ranks >= 1; --ranks) {
      moved.train(ranks, 1, testing::joined(model, {"run.stop_after=2step"}));
    }
    for (const auto& [step, perplexity] : expected) {
      EXPECT_NEAR(moved.perplexities().at(step), perplexity, 1e-12 * perplexity) << step;
    }
  }
}

}  // namespace
}  // namespace shoal
