#include "launch/train/restore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/state_list.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kEqualityRecipe;
using testing::read_file;
using testing::ScratchFolder;

Recipe recipe_of(std::vector<std::string> overrides) {
  overrides.emplace_back("optimizer={name: adamw, lr: 1e-2}");
  return config::load_options_text<Recipe>(kEqualityRecipe, "test", {"", overrides, nullptr})
      .options;
}

/// A session of its own in a run folder of its own.
struct TrainingRun {
  TrainingRun(std::string path, const std::vector<std::string>& overrides)
      : recipe(recipe_of(overrides)),
        data(make_source(recipe)->open(Split::kTrain)),
        session(recipe, *data, grid),
        folder{std::move(path)},
        log(folder.path + ".log", 0, nullptr) {
    std::filesystem::create_directories(folder.checkpoints());
  }

  CheckpointWriter::Options begin() {
    return begin_or_resume(session, recipe, folder, {.override_fixed = false, .log = log});
  }
  void load_weights() { load_initial_weights(session, recipe); }
  /// Trains a few steps and saves; returns the checkpoint's path.
  std::string train(int64_t steps) {
    for (int64_t step = 0; step < steps; ++step) session.step({});
    CheckpointWriter writer(begin(), *grid.world, files);
    return writer.save(session, {session.steps_done(), session.samples_done(), std::nullopt}).path;
  }
  std::string digest() {
    return state_digest(session, session.steps_done(), session.samples_done(), *grid.world);
  }

  Recipe recipe;
  RankGrid grid = testing::self_grid();
  std::unique_ptr<SampleSet> data;
  Session session;
  RunFolder folder;
  Log log;
  PosixFileSystem files;
};

class LoadRun : public ::testing::Test {
 protected:
  ScratchFolder scratch_;
};

TEST_F(LoadRun, ResumesAndLogsTheDigestOfWhatItHolds) {
  TrainingRun first(scratch_.file("run"), {});
  const std::string path = first.train(3);
  ASSERT_NE(path, "");
  TrainingRun second(scratch_.file("run"), {"run.name=another"});
  second.folder.resume = true;
  EXPECT_EQ(second.begin().resumed_step, 3);
  EXPECT_EQ(second.digest(), first.digest());
  EXPECT_EQ(second.digest(), content_digest(CheckpointReader(path)));
  EXPECT_THAT(read_file(second.folder.path + ".log"),
              AllOf(HasSubstr(path + " at step 3"), HasSubstr(second.digest())));
}

TEST_F(LoadRun, InitFromTakesWeightsAndStartsAllElseAfresh) {
  TrainingRun trained(scratch_.file("trained"), {});
  trained.train(3);
  const std::vector<std::string> overrides{"run.seed=2", "model.init_from=" + trained.folder.path};
  TrainingRun started(scratch_.file("started"), overrides);
  TrainingRun untouched(scratch_.file("untouched"), {"run.seed=2"});
  started.load_weights();
  EXPECT_EQ(started.session.steps_done(), 0);
  EXPECT_EQ(started.session.samples_done(), 0);
  const StateList now = list_state(started.session);
  const StateList fresh = list_state(untouched.session);
  const StateList source = list_state(trained.session);
  int64_t num_weights = 0;
  for (const StateEntry& entry : now.tensors) {
    const std::string& name = entry.entry.name;
    const bool is_weight = name.find("optimizer") == std::string::npos;
    num_weights += is_weight ? 1 : 0;
    EXPECT_TRUE(entry.value.equal((is_weight ? source : fresh).find(name).value)) << name;
  }
  EXPECT_GT(num_weights, 10);
  EXPECT_LT(num_weights, static_cast<int64_t>(now.tensors.size()));
}

TEST_F(LoadRun, InitFromNamesWhatDoesNotFit) {
  TrainingRun trained(scratch_.file("trained"), {});
  trained.train(1);
  TrainingRun wider(scratch_.file("wider"),
                    {"model.width=16", "model.init_from=" + trained.folder.path});
  try {
    wider.load_weights();
    ADD_FAILURE() << "weights of another width were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kMismatch);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("backbone."), HasSubstr("16]"), HasSubstr("8]")));
  }
  TrainingRun nowhere(scratch_.file("nowhere"), {"model.init_from=" + scratch_.file("none")});
  EXPECT_THROW(nowhere.load_weights(), CheckpointError);
}

TEST_F(LoadRun, ARunToBeResumedThatHasNoCheckpointTakesTheWeights) {
  TrainingRun trained(scratch_.file("trained"), {});
  trained.train(2);
  const std::string init_from = "model.init_from=" + trained.folder.path;
  TrainingRun started(scratch_.file("started"), {init_from});
  started.load_weights();
  TrainingRun resumed(scratch_.file("resumed"), {init_from, "run.on_existing=resume"});
  resumed.folder.resume = true;
  resumed.begin();
  EXPECT_EQ(resumed.digest(), started.digest());
}

TEST_F(LoadRun, RefusesToStartAnewOverCheckpointsThatCannotBeRead) {
  TrainingRun first(scratch_.file("run"), {});
  const std::string path = first.train(2);
  std::filesystem::resize_file(path + "/manifest.json", 10);
  TrainingRun second(first.folder.path, {"run.on_existing=resume"});
  second.folder.resume = true;
  EXPECT_THROW(second.begin(), CheckpointError);
}

}  // namespace
}  // namespace shoal
