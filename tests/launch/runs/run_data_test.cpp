#include "launch/runs/run_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/error.h"
#include "tests/launch/runs/run_folder_fixture.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using testing::DrawnRun;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_file;
using testing::ScratchFolder;
using testing::write_drawn_run;
using testing::write_file;

TEST(RunData, HoldsWhatTheFilesSay) {
  const ScratchFolder scratch;
  const RunData run = read_run(write_drawn_run(scratch, {.gates = 1, .permutations = 3}));
  EXPECT_EQ(run.name, "drawn");
  EXPECT_EQ(run.last_step, 100);
  EXPECT_EQ(run.steps.find("loss")->num_finite(), 100);
  EXPECT_EQ(run.steps.find("loss")->last().value, 0.5);
  EXPECT_EQ(run.steps.find("a_task_score"), nullptr);
  EXPECT_EQ(run.evaluations.find("a_task_score")->num_finite(), 4);
  ASSERT_EQ(run.experts.size(), 2u);
  EXPECT_EQ(run.experts[1].layer, "blocks.1.moe");
  EXPECT_EQ(run.experts[1].numbers.find("dropped")->num_finite(), 100);
  EXPECT_EQ(run.experts[1].lists.at("load").columns().size(), 100u);
  EXPECT_EQ(run.gates.size(), 1u);
  EXPECT_EQ(run.permutations.size(), 3u);
  EXPECT_EQ(run.env["world"], 2);
  EXPECT_EQ(run.summary["steps"], 100);
  EXPECT_THAT(run.problems, IsEmpty());
}

TEST(RunData, OfARunInProgressLeavesOutACutLine) {
  const ScratchFolder scratch;
  const std::string folder = write_drawn_run(scratch, {.is_finished = false});
  for (const char* name : {"/metrics.jsonl", "/experts.jsonl"}) {
    write_file(folder + name, read_file(folder + name) + "{\"step\": 1");
  }
  const RunData run = read_run(folder);
  EXPECT_EQ(run.steps.find("loss")->num_finite(), 100);
  EXPECT_TRUE(run.summary.empty());
  EXPECT_THAT(run.problems, IsEmpty());
}

TEST(RunData, NamesBrokenLinesAndFiles) {
  const ScratchFolder scratch;
  const std::string folder = write_drawn_run(scratch, {});
  write_file(folder + "/metrics.jsonl",
             "{}\nnonsense\nmore\n" + read_file(folder + "/metrics.jsonl"));
  write_file(folder + "/summary.json", "{\"exit_code\": ");
  write_file(folder + "/pictures.png", testing::drawn_pictures(1).substr(0, 100));
  const RunData run = read_run(folder);
  EXPECT_EQ(run.steps.find("loss")->num_finite(), 100);
  EXPECT_THAT(run.problems,
              ElementsAre("summary.json: no JSON object, left out",
                          "metrics.jsonl: 2 lines are broken, left out; the first is line 2",
                          "pictures.png: none that training wrote, left out"));
}

TEST(RunData, NeedsNoMoreThanOneFileOfARun) {
  const ScratchFolder scratch;
  fs::create_directories(scratch.file("run"));
  write_file(scratch.file("run/resolved.yaml"), "run: {name: x}\n");
  const RunData run = read_run(scratch.file("run"));
  EXPECT_TRUE(run.steps.curves().empty());
  EXPECT_THAT(run.checkpoints, IsEmpty());
}

TEST(RunData, RefusesWhatIsNoRun) {
  const ScratchFolder scratch;
  const auto refusal = [](const std::string& path) {
    try {
      read_run(path);
    } catch (const DataError& error) {
      return std::string(error.what());
    } catch (const Error& error) {
      return fmt::format("{}: {}", static_cast<int>(error.code()), error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(scratch.file("none")), "2: '" + scratch.file("none") + "' does not exist");
  EXPECT_THAT(refusal(scratch.path()), HasSubstr("is not a run: it has none of resolved.yaml"));
  fs::create_directories(scratch.file("step-00000001"));
  write_file(scratch.file("step-00000001/manifest.json"), "{}");
  EXPECT_THAT(refusal(scratch.file("step-00000001")), HasSubstr("is a checkpoint, not a run"));
}

TEST(RunData, NamesADamagedCheckpoint) {
  const ScratchFolder scratch;
  const std::string folder = write_drawn_run(scratch, {});
  fs::create_directories(folder + "/ckpt/step-00000050");
  write_file(folder + "/ckpt/step-00000050/manifest.json", "{}");
  const RunData run = read_run(folder);
  ASSERT_EQ(run.checkpoints.size(), 1u);
  EXPECT_EQ(run.checkpoints[0].step, 50);
  EXPECT_THAT(run.checkpoints[0].damage, HasSubstr("manifest.json"));
}

TEST(RunData, LeavesOutACheckpointThatWasRemovedSinceItWasListed) {
  const ScratchFolder scratch;
  fs::create_directories(scratch.file("step-00000050"));
  write_file(scratch.file("step-00000050/manifest.json"), "{}");
  ASSERT_TRUE(checkpoint_facts(scratch.path(), 50).has_value());
  EXPECT_THAT(checkpoint_facts(scratch.path(), 50)->damage, HasSubstr("manifest.json"));
  // As remove_old_checkpoints begins.
  fs::rename(scratch.file("step-00000050"), scratch.file(".old-step-00000050"));
  EXPECT_FALSE(checkpoint_facts(scratch.path(), 50).has_value());
  // Files that are missing are a damage, not a removal.
  fs::create_directories(scratch.file("step-00000060"));
  EXPECT_FALSE(checkpoint_facts(scratch.path(), 60).value().damage.empty());
}

TEST(RecipeValues, HaveTheOriginsThatStandBehindThem) {
  const std::vector<RecipeValue> values = recipe_values(
      "run:\n"
      "  name: \"a # b\"        # mine.yaml:3\n"
      "  seed: 1\n"
      "data:\n"
      "  files: [x, \"y # z\"]\n"
      "losses:\n"
      "  - name: importance   # command line\n"
      "    weight: 0.005      # default\n"
      "empty: {}\n");
  std::vector<std::string> texts;
  for (const RecipeValue& value : values) {
    texts.push_back(value.path + "=" + value.text + "|" + value.origin);
  }
  EXPECT_THAT(texts,
              ElementsAre("run.name=\"a # b\"|mine.yaml:3", "run.seed=1|",
                          "data.files=[x, \"y # z\"]|", "losses[0].name=importance|command line",
                          "losses[0].weight=0.005|default", "empty={}|"));
  EXPECT_THAT(recipe_values("[1, 2"), IsEmpty());
  EXPECT_THAT(recipe_values(""), IsEmpty());
}

}  // namespace
}  // namespace shoal
