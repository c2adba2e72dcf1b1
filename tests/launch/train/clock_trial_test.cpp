#include "launch/train/clock_trial.h"
#include "launch/data/recipe_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "launch/runs/run_folder.h"
#include "parallel/checkpoint/checkpoint.h"
#include "runtime/options/config_writer.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::equality_recipe;
using ::testing::HasSubstr;
using testing::ScratchFolder;

/// Steps of a second each, unless told otherwise, 10 to an epoch.
int64_t steps_of(const std::string& duration, const std::string& every, TrialTimes times) {
  const Recipe recipe = equality_recipe({"train.duration=" + duration, "evaluate.every=" + every});
  return steps_in_time(recipe, times, {.samples_per_epoch = 80, .samples_per_step = 8});
}

TEST(ClockTrial, FillsTheTimeWithStepsAndTheirEvaluations) {
  EXPECT_EQ(steps_of("90s", "never", {1, 0}), 90);
  EXPECT_EQ(steps_of("1min30s", "never", {0.25, 0}), 360);
  EXPECT_EQ(steps_of("90s", "1ep", {1, 5}), 60);       // 6 evaluations, the last at the end
  EXPECT_EQ(steps_of("94s", "1ep", {1, 5}), 60);       // a step more would bring a seventh
  EXPECT_EQ(steps_of("96s", "1ep", {1, 5}), 61);       // with an evaluation at the end
  EXPECT_EQ(steps_of("90s", "1000step", {1, 5}), 85);  // one at the end
  EXPECT_EQ(steps_of("90s", "25%", {1, 5}), 70);       // 4
  EXPECT_EQ(steps_of("90s", "30s", {1, 5}), 75);       // after 30 and 60 seconds of steps
}

TEST(ClockTrial, GivesNoStepWhereNotEvenOneFitsWithItsEvaluation) {
  EXPECT_EQ(steps_of("3s", "never", {3, 0}), 1);
  EXPECT_EQ(steps_of("2s", "never", {3, 0}), 0);
  EXPECT_EQ(steps_of("90s", "1ep", {1, 89}), 1);
  EXPECT_EQ(steps_of("90s", "1ep", {1, 90}), 0);
}

TEST(ClockTrial, TimesStepsAndAnEvaluationOnAllRanks) {
  const Recipe recipe = equality_recipe({"train.duration=1h", "data.prefetch=0"});
  testing::run_grid(1, 2, [&](RankGrid& grid) {
    const auto source = make_source(recipe);
    const JobData data{open_split(source, Split::kTrain), open_split(source, Split::kValid)};
    Session session(recipe, testing::model_on(recipe, data.train, grid), data.train, grid);
    Recipe quick = recipe;
    quick.train.duration = Duration{DurationUnit::kSecond, 1, 1'000'000};
    const TrialTimes few = run_trial(session, quick, data);
    EXPECT_EQ(session.steps_done(), 2);  // a step is longer than a tenth of the training
    EXPECT_GT(few.step_s, 0);
    EXPECT_GT(few.evaluation_s, 0);
    quick.train.duration = Duration::seconds(1);
    quick.evaluate.every.reset();
    EXPECT_EQ(run_trial(session, quick, data).evaluation_s, 0);
    EXPECT_GT(session.steps_done(), 2);
  });
}

/// A run's folder with a checkpoint of step 0 that `written_by` and train.duration are stored in.
class ResumedDuration : public ::testing::Test {
 protected:
  void save(const std::string& duration, const std::map<std::string, std::string>& written_by) {
    const Recipe recipe = of(duration, {});
    const OpenSplit train = open_split(make_source(recipe), Split::kTrain);
    Session session(recipe, testing::model_on(recipe, train, grid_), train, grid_);
    CheckpointWriter::Options options;
    options.folder = RunFolder{run_path(recipe.run)}.checkpoints();
    options.recipe = config::canonical_text(recipe);
    options.written_by = written_by;
    std::filesystem::create_directories(options.folder);
    CheckpointWriter writer(options, *grid_.world, files_);
    ASSERT_TRUE(writer.save(session, {}).ok);
  }
  Recipe of(const std::string& duration, std::vector<std::string> overrides) {
    overrides.push_back("train.duration=" + duration);
    overrides.push_back("run.root=" + scratch_.path());
    return equality_recipe(overrides);
  }
  std::optional<Duration> resumed(const std::string& duration,
                                  const std::string& policy = "resume") {
    return resumed_duration(of(duration, {"run.on_existing=" + policy}), *grid_.world, false);
  }
  std::string refusal(const std::string& duration) {
    try {
      resumed(duration);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kMismatch);
      return error.what() + std::string("\n") + error.hint();
    }
    return "";
  }

  ScratchFolder scratch_;
  PosixFileSystem files_;
  RankGrid grid_ = testing::self_grid();
};

TEST_F(ResumedDuration, IsTheCheckpointsForTheSameTimeAlone) {
  EXPECT_EQ(resumed("90s"), std::nullopt);
  save("1234step", {{kWrittenClock, "1min30s"}});
  EXPECT_EQ(resumed("90s"), Duration::steps(1234));
  EXPECT_EQ(resumed("90s", "new"), std::nullopt);
  EXPECT_THAT(refusal("3min"), AllOf(HasSubstr("3min cannot be timed for a run that has begun"),
                                     HasSubstr("it trains for 1234step, timed for 1min30s"),
                                     HasSubstr("resume it with train.duration=1234step")));
}

TEST_F(ResumedDuration, IsRefusedWhereTheRunWasNotTimed) {
  save("3ep", {});
  EXPECT_THAT(refusal("3min"),
              AllOf(HasSubstr("it trains for 3ep\n"), HasSubstr("train.duration=3ep, or")));
}

}  // namespace
}  // namespace shoal
