#include "launch/train/run_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "launch/data/open_split.h"
#include "parallel/comm/communicator.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;
using testing::ScratchFolder;

class Summary : public ::testing::Test {
 protected:
  std::string write(int64_t first_step, int64_t last_step) {
    TrainingResult result;
    result.code = code_;
    result.first_step = first_step;
    result.last_step = last_step;
    result.total_steps = total_steps_.value_or(last_step);
    result.seconds = 3.0;
    result.evaluation_seconds = 1.0;
    result.samples_per_step = 4;
    if (first_step < last_step) result.evaluation = Evaluation{{{"loss", 0.5}, {"top1", 0.75}}, 8};
    lacked_ = first_step == last_step && lacks_summary(folder_, last_step, *world_);
    return write_summary(folder_, result, {}, notes_);
  }
  std::string text() const { return read_file(folder_.file("summary.json")); }

  bool lacked_ = false;  ///< before the last write
  std::optional<int64_t> total_steps_;
  std::vector<std::string> notes_;
  ExitCode code_ = ExitCode::kOk;

 private:
  std::unique_ptr<Communicator> world_ = make_self_communicator();
  ScratchFolder scratch_;
  RunFolder folder_{scratch_.path()};
};

TEST_F(Summary, OfAFinishedRunStaysWhenNothingIsLeftToTrain) {
  EXPECT_THAT(write(0, 8), Not(HasSubstr("finished already")));
  const std::string before = text();
  EXPECT_THAT(before, HasSubstr("\"top1\": 0.75"));
  const std::string shown = write(8, 8);
  EXPECT_THAT(shown, HasSubstr("finished already, at step 8"));
  EXPECT_THAT(shown, HasSubstr("train.duration"));
  EXPECT_EQ(text(), before);
  EXPECT_FALSE(lacked_);
}

TEST_F(Summary, StaysWhenFewerStepsAreAskedForThanAreDone) {
  code_ = ExitCode::kPreempted;
  write(0, 19);
  code_ = ExitCode::kOk;
  const std::string before = text();
  total_steps_ = 5;
  EXPECT_THAT(write(19, 19),
              AllOf(HasSubstr("the checkpoint is at step 19, and train.duration ends "
                              "at step 5;"),
                    HasSubstr("stay as they are"), Not(HasSubstr("finished"))));
  EXPECT_EQ(text(), before);
}

TEST_F(Summary, IsWrittenWhenNoneOfTheLastStepIsThere) {
  write(8, 8);
  EXPECT_TRUE(lacked_);
  EXPECT_THAT(text(), HasSubstr("\"steps\": 8"));
  EXPECT_THAT(write(0, 4), HasSubstr("time"));
  EXPECT_FALSE(lacked_);
  EXPECT_THAT(write(8, 8), AllOf(Not(HasSubstr("finished already")), Not(HasSubstr("time"))));
  EXPECT_TRUE(lacked_);
  EXPECT_THAT(text(), HasSubstr("\"steps\": 8"));
}

TEST_F(Summary, ListsTheNotes) {
  write(0, 4);
  EXPECT_THAT(text(), HasSubstr("\"notes\": []"));
  notes_ = {"blocks.1.moe: for measurements only"};
  write(4, 8);
  EXPECT_THAT(text(), ::testing::ContainsRegex("\"notes\": \\[[^]]*measurements only"));
}

TEST_F(Summary, TellsTheStepsOfThisSessionWhereItIsNotTheFirst) {
  const std::string whole = write(0, 8), resumed = write(8, 12);
  EXPECT_THAT(whole, AllOf(HasSubstr("8 (4 samples each)"), Not(HasSubstr("this session"))));
  EXPECT_THAT(resumed, AllOf(HasSubstr("12 (4 samples each)"),
                             HasSubstr("this session     4 steps, after step 8")));
  EXPECT_THAT(text(), AllOf(HasSubstr("\"first_step\": 8"), HasSubstr("\"steps\": 12")));
}

TEST_F(Summary, KeepsEvaluationsOutOfTheRateOfTraining) {
  EXPECT_THAT(write(0, 8), HasSubstr("2s of training (16 img/s), 1s of evaluation"));
  EXPECT_THAT(text(), AllOf(HasSubstr("\"seconds\": 3.0"), HasSubstr("\"evaluation_seconds\": 1.0"),
                            HasSubstr("\"samples_per_second\": 16.0")));
}

TEST(ExpertTable, CountsMemoryUnitsApart) {
  MoeReport layer;
  layer.layer = "blocks.1.nexus";
  layer.load_U = {1, 2, 3, 4, 5};
  EXPECT_THAT(expert_table({layer}),
              AllOf(HasSubstr("\n  blocks.1.nexus  5        "), Not(HasSubstr("memory"))));
  layer.num_memory_units = 2;
  EXPECT_THAT(expert_table({layer}),
              AllOf(HasSubstr("experts  memory units  load"),
                    HasSubstr("\n  blocks.1.nexus  3        2             ")));
}

TEST_F(Summary, OfAStopBeforeTheFirstStepDoesNotCallTheRunFinished) {
  code_ = ExitCode::kPreempted;
  write(0, 4);
  EXPECT_THAT(write(4, 4), Not(HasSubstr("finished already")));
}

/// What a start from these overrides leaves in the run's folder.
void start(const RunFolder& folder, const std::vector<std::string>& overrides, int64_t first_step,
           const std::string& clock = "") {
  const std::unique_ptr<Communicator> world = make_self_communicator();
  const std::string text =
      "task: {name: classify}\n"
      "train: {duration: 4step, batch: 8}\n"
      "data: {source: shapes}\n"
      "model: {backbone: mixer}\n";
  const LoadedRecipe recipe = config::load_options<Recipe>({"mine.yaml", overrides, nullptr, text});
  const LaunchInfo launch;
  const DeviceChoice device{torch::kCPU, "asked for"};
  write_run_records(folder, recipe, {launch, overrides, device, first_step, clock}, *world);
}

TEST(RunRecords, SayWhereEachValueOfTheRecipeWasWritten) {
  const ScratchFolder scratch;
  const RunFolder folder{scratch.path()};
  start(folder, {"run.seed=3"}, 0);
  const std::string text = read_file(folder.file("resolved.yaml"));
  EXPECT_THAT(text, ::testing::ContainsRegex("  seed: 3 +# command line\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("  batch: 8 +# mine.yaml:2\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("  clip_norm: [^#]*# default\n"));
  // It is a recipe again.
  const LoadedRecipe again =
      config::load_options<Recipe>({folder.file("resolved.yaml"), {}, nullptr});
  EXPECT_EQ(again.options.run.seed, 3);
}

TEST(RunRecords, SayWhichTimeTheStepsComeFrom) {
  const ScratchFolder scratch;
  const RunFolder folder{scratch.path()};
  start(folder, {}, 0, "1min30s");
  EXPECT_THAT(read_file(folder.file("resolved.yaml")),
              ::testing::ContainsRegex("  duration: 4step +# 1min30s, timed when the run began\n"));
}

/// What is logged where a training starts on this device.
std::string log_of_start(const std::vector<std::string>& overrides, c10::Device device) {
  const ScratchFolder scratch;
  testing::write_file(scratch.file("r.yaml"), testing::kEqualityRecipe);
  const CheckedRecipe checked =
      check_recipe({scratch.file("r.yaml"), overrides, {}}, config::UnsetVariable::kKeep, 1);
  const Recipe& recipe = checked.loaded.options;
  RankGrid grid = testing::self_grid();
  const JobData data{open_split(checked.source, Split::kTrain),
                     open_split(checked.source, Split::kValid)};
  const Session session(recipe, testing::model_on(recipe, data.train, grid), data.train, grid);
  const RankDevices devices{{device, "asked for"}, {}, nullptr};
  Log log(scratch.file("log"), 0, nullptr);
  log_start({checked, devices, session, data, false, ""}, log);
  return read_file(scratch.file("log"));
}

TEST(RunRecords, TellAtTheStartWhatGpusComputeSlowly) {
  const std::string note = "float32 products leave a GPU's tensor cores unused";
  EXPECT_THAT(log_of_start({"train.precision=float32"}, torch::kCUDA), HasSubstr(note));
  EXPECT_THAT(log_of_start({"train.precision=float32", "run.tf32=true"}, torch::kCUDA),
              Not(HasSubstr(note)));
  EXPECT_THAT(log_of_start({"train.precision=float32"}, torch::kCPU), Not(HasSubstr(note)));
}

TEST(RunRecords, ListTheStartsOfARun) {
  const ScratchFolder scratch;
  const RunFolder folder{scratch.path()};
  const auto starts = [&] {
    return nlohmann::json::parse(read_file(folder.file("env.json")))["starts"];
  };
  start(folder, {"run.seed=3"}, 0);
  ASSERT_EQ(starts().size(), 1u);
  start(folder, {"run.seed=3", "run.on_existing=resume"}, 2);
  ASSERT_EQ(starts().size(), 2u);
  EXPECT_EQ(starts()[0]["step"], 0);
  EXPECT_EQ(starts()[1]["step"], 2);
  EXPECT_EQ(starts()[1]["world"], 1);
  EXPECT_EQ(starts()[1]["command"][1], "run.on_existing=resume");
  EXPECT_THAT(starts()[1]["time"].get<std::string>(),
              ::testing::ContainsRegex("^20[0-9][0-9]-[01][0-9]-[0-3][0-9] .* UTC$"));
}

}  // namespace
}  // namespace shoal
