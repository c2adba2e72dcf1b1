#include "launch/check/recipe_notes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/equality_text.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kQuiet =
    "data: {source: shapes, image_size: 8, classes: 3}\n"
    "model:\n"
    "  backbone: vit\n"
    "  patch: 4\n"
    "  width: 8\n"
    "  depth: 1\n"
    "  heads: 2\n"
    "  moe:\n"
    "    router: {name: top_k, k: 1}\n"
    "    losses: [{name: importance, weight: 0.01}]\n"
    "    experts: {count: 4, hidden: 6}\n"
    "task: {name: classify}\n"
    "train: {duration: 40step, batch: 16}\n"
    "checkpoint: {keep_best: 1}\n";

/// A disk with so many bytes free.
class Disk final : public FileSystem {
 public:
  explicit Disk(int64_t free) : free_(free) {}
  int open(const std::string&, Mode) override { return -EIO; }
  int open_directory(const std::string&) override { return -EIO; }
  int64_t write(int, const void*, size_t) override { return -EIO; }
  int sync(int) override { return -EIO; }
  int close(int) override { return -EIO; }
  int rename(const std::string&, const std::string&) override { return -EIO; }
  int make_directory(const std::string&) override { return -EIO; }
  int remove_file(const std::string&) override { return -EIO; }
  int remove_directory(const std::string&) override { return -EIO; }
  int64_t free_bytes(const std::string&) override { return free_; }

 private:
  int64_t free_;
};

class RecipeWarnings : public ::testing::Test {
 protected:
  CheckedRecipe checked(const std::vector<std::string>& overrides,
                        std::optional<int64_t> world = 1) {
    testing::write_file(scratch_.file("r.yaml"), kQuiet);
    return check_recipe({scratch_.file("r.yaml"), overrides, {}}, config::UnsetVariable::kKeep,
                        world);
  }
  std::vector<std::string> of(const std::vector<std::string>& overrides, int64_t world = 1,
                              int64_t free = int64_t{1} << 40) {
    Disk disk(free);
    return recipe_warnings(checked(overrides), world, disk);
  }
  testing::ScratchFolder scratch_;
};

class RecipeNotes : public RecipeWarnings {
 protected:
  std::vector<std::string> of(const std::vector<std::string>& overrides) {
    return recipe_notes(checked(overrides));
  }
};

class GpuNotes : public RecipeWarnings {
 protected:
  std::vector<std::string> of(const std::vector<std::string>& overrides) {
    return recipe_notes(checked(overrides, std::nullopt), /*on_gpu=*/true);
  }
};

TEST_F(GpuNotes, AreNoneForWhatGpusComputeFast) {
  EXPECT_THAT(of({"train.precision=bfloat16", "model.moe.experts={count: 8, hidden: 16}",
                  "model.patch=8", "data.image_size=16"}),
              IsEmpty());
  EXPECT_THAT(of({"train.precision=float64"}), IsEmpty()) << "no tensor cores are expected";
}

TEST_F(GpuNotes, NameFloat32WithoutTf32) {
  EXPECT_THAT(of({}), ElementsAre(AllOf(HasSubstr("train.precision: float32 products"),
                                        HasSubstr("run.tf32=true"))));
}

TEST_F(GpuNotes, NameWeightsThatTensorCoresDoNotDivide) {
  const auto note = AllOf(HasSubstr("not multiples of 8"),
                          HasSubstr("blocks.0.moe.experts.*.fc1.weight"), HasSubstr("8 x 6"));
  for (const char* precision : {"train.precision=bfloat16", "run.tf32=true"}) {
    EXPECT_THAT(of({precision, "model.moe.experts.count=8"}), ElementsAre(note)) << precision;
  }
}

TEST_F(GpuNotes, NameLayersInWhichTheHostWaits) {
  const std::vector<std::string> sharded{"train.precision=float64", "parallel.expert_ranks=2"};
  const auto of_mode = [&](const std::string& mode) {
    return of({sharded[0], sharded[1], "model.moe.capacity.mode=" + mode});
  };
  const auto note = ElementsAre(
      AllOf(HasSubstr("model.moe.capacity.mode: the host waits"), HasSubstr("padded does not")));
  EXPECT_THAT(of_mode("dropless"), note);
  EXPECT_THAT(of_mode("capped"), note);
  EXPECT_THAT(of_mode("padded"), IsEmpty());
  for (const char* mode : {"dropless", "padded"}) {
    EXPECT_THAT(of({sharded[0], sharded[1], std::string("model.moe.capacity.mode=") + mode,
                    "model.moe.exchange.hierarchical=true"}),
                ElementsAre(AllOf(HasSubstr("model.moe.exchange.hierarchical: the host waits"),
                                  HasSubstr("padded too"))));
  }
}

TEST_F(GpuNotes, AreNoneForTheCapacityOfGates) {
  std::vector<std::string> overrides = testing::with_hspmn(testing::answers(), "rate: 0.4");
  overrides.insert(overrides.end(), {"train.precision=float64", "parallel.expert_ranks=2"});
  EXPECT_THAT(of(overrides), Not(Contains(HasSubstr("the host waits"))));
}

TEST_F(RecipeWarnings, AreNoneForWhatWorks) { EXPECT_THAT(of({}), IsEmpty()); }

TEST_F(RecipeWarnings, NameKeysOfACapacityThatLimitsNothing) {
  EXPECT_THAT(of({"model.moe.capacity={factor: 1.5}"}),
              ElementsAre(HasSubstr("model.moe.capacity.factor: no effect")));
  EXPECT_THAT(of({"model.moe.capacity={mode: capped, factor: 1.5}"}), IsEmpty());
  EXPECT_THAT(of({"model.moe.capacity={factor: 1.05, min: 4}"}), IsEmpty()) << "as by default";
}

TEST_F(RecipeWarnings, NameRoutersThatNothingBalances) {
  EXPECT_THAT(of({"model.moe.losses=[]"}),
              ElementsAre(AllOf(HasSubstr("blocks.0.moe: nothing balances the load of the top_k"),
                                HasSubstr("write losses: auto"))));
  EXPECT_THAT(of({"~model.moe.losses"}), ElementsAre(HasSubstr("blocks.0.moe: nothing balances")));
  EXPECT_THAT(of({"model.moe.losses=[{name: z, weight: 0.01}]"}),
              ElementsAre(HasSubstr("blocks.0.moe: nothing balances")));
  EXPECT_THAT(of({"model.moe.losses=auto"}), IsEmpty());
  EXPECT_THAT(of({"model.moe.losses=[]", "model.moe.router={name: sigmoid, bias: {rate: 0.001}}"}),
              IsEmpty());
  EXPECT_THAT(of({"model.moe.losses=[]", "model.moe.router={name: hash}"}), IsEmpty());
}

TEST_F(RecipeWarnings, NameAllLayersOfARouterInOneLine) {
  EXPECT_THAT(of({"model.moe.losses=[]", "model.depth=6"}),
              ElementsAre(HasSubstr("blocks.3.moe, blocks.5.moe: nothing balances")));
}

TEST_F(RecipeNotes, TellWhatATrialOfTheDurationSettles) {
  EXPECT_THAT(
      of({"train.duration=3min"}),
      ElementsAre(AllOf(HasSubstr("train.duration: a short trial at the start converts the time"),
                        HasSubstr("the end of the schedule"), HasSubstr("values in percent"))));
  EXPECT_THAT(of({"train.duration=3step"}), IsEmpty());
}

TEST_F(RecipeNotes, NameTheLossesThatAutoStandsFor) {
  EXPECT_THAT(
      of({"model.moe.losses=auto"}),
      ElementsAre("model.moe.losses: auto stands for importance 0.005, load 0.005, which is "
                  "usual for the top_k router"));
  EXPECT_THAT(of({"model.moe={losses: auto, router: {name: hash, k: 1}}"}),
              ElementsAre("model.moe.losses: auto stands for none, which is usual for the hash "
                          "router"));
  EXPECT_THAT(of({"model.moe={losses: auto, router: {name: mlp}}"}),
              Contains(HasSubstr("auto stands for switch 0.01 of scope global, entropy 0.01 of")));
  // As wherever a value may be auto.
  EXPECT_THAT(of({"model.moe.losses=null"}), ElementsAre(HasSubstr("auto stands for importance")));
  EXPECT_THAT(of({"model.moe.losses=[]"}), IsEmpty());
}

TEST_F(RecipeNotes, NameAnOptimizerStateThatOnlySparseTrainingUses) {
  const std::string optimizer = "optimizer={name: adamw, entry_steps: true}";
  EXPECT_THAT(
      of({optimizer}),
      ElementsAre(HasSubstr(
          "optimizer: without sparsity all weights have the same age, so that the state t")));
  EXPECT_THAT(of({optimizer, "sparsity={density: 0.5}"}), Not(Contains(HasSubstr("same age"))));
}

TEST_F(RecipeNotes, NameALossOfLearnedGatesThatDependsOnAccumulation) {
  const auto of_gates = [this](const std::string& gate, const std::string& accumulate) {
    std::vector<std::string> overrides = testing::with_hspmn(testing::answers(), gate);
    overrides.push_back("train.accumulate=" + accumulate);
    return of(overrides);
  };
  EXPECT_THAT(of_gates("rate: 0.4", "2"),
              ElementsAre(AllOf(HasSubstr("model.gate.rate_weight: the loss of the gates' rate"),
                                HasSubstr("depends on train.accumulate"))));
  EXPECT_THAT(of_gates("rate: 0.4", "1"), IsEmpty());
  EXPECT_THAT(of_gates("rate: 0.4, select: random", "2"), IsEmpty());
}

class ScheduleWarnings : public RecipeWarnings {
 protected:
  /// `known`: steps of the training, one in an epoch.
  std::vector<std::string> of(const std::vector<std::string>& overrides, int64_t known = 0) {
    return schedule_warnings(checked(overrides),
                             {.samples_per_epoch = 1, .samples_per_step = 1, .total_steps = known});
  }
};

TEST_F(ScheduleWarnings, NameAWarmUpThatEndsNoSoonerThanTheTraining) {
  EXPECT_THAT(of({}), IsEmpty());
  EXPECT_THAT(of({"schedule.warmup=39step"}), IsEmpty());
  EXPECT_THAT(of({"schedule.warmup=40step"}),
              ElementsAre(AllOf(HasSubstr("schedule.warmup: 40step"),
                                HasSubstr("the learning rate never reaches optimizer.lr"))));
  EXPECT_THAT(of({"schedule.warmup=101%"}), ElementsAre(HasSubstr("schedule.warmup: 101%")));
  EXPECT_THAT(of({"schedule.warmup=2ep", "train.duration=2ep"}), ElementsAre(HasSubstr("2ep")));
}

TEST_F(ScheduleWarnings, NameARuleThatNeverUpdatesTheMasks) {
  const auto of_rule = [this](const std::string& rule, int64_t known = 0) {
    return of({"sparsity={density: 0.5, rule: " + rule + "}"}, known);
  };
  // Of the 40 steps 30 may update.
  const std::string never = "sparsity.rule: rigl makes no update in a training of 40step";
  EXPECT_THAT(of_rule("{name: rigl, every: 29step}"), IsEmpty());
  EXPECT_THAT(of_rule("{name: rigl, every: 30step}"), ElementsAre(HasSubstr(never)));
  EXPECT_THAT(of_rule("{name: rigl, every: 1ep}"), IsEmpty()) << "the data tell how long it is";
  EXPECT_THAT(of_rule("{name: rigl, every: 40ep}", 40), ElementsAre(HasSubstr(never)));
  EXPECT_THAT(of_rule("{name: static}"), IsEmpty()) << "it is to keep the masks";
}

TEST_F(ScheduleWarnings, NameMilestonesAtTheEndOrBehindIt) {
  EXPECT_THAT(
      of({"schedule={name: step, milestones: [50%, 40step, 39step, 100%]}"}),
      ElementsAre(HasSubstr("schedule.milestones[1]: 40step lies at or behind the end of the "
                            "training of 40step: no effect"),
                  HasSubstr("schedule.milestones[3]: 100%")));
}

TEST_F(ScheduleWarnings, AreNoneWhileTheLengthOfTheTrainingIsNotKnown) {
  EXPECT_THAT(of({"train.duration=3min", "schedule={name: cosine, warmup: 40step}"}), IsEmpty());
}

TEST_F(ScheduleWarnings, CountEpochsWhereTheirLengthIsKnown) {
  const std::vector<std::string> one_of_one{"schedule.warmup=5%", "train.duration=1ep"};
  EXPECT_THAT(of(one_of_one), IsEmpty());
  EXPECT_THAT(
      of(one_of_one, 1),
      ElementsAre(HasSubstr("schedule.warmup: 5% lies at or behind the end of the training of "
                            "1ep (1 step)")));
  EXPECT_THAT(of(one_of_one, 2), IsEmpty());
  EXPECT_THAT(of({"schedule.warmup=41step", "train.duration=2ep"}), IsEmpty());
}

TEST_F(RecipeWarnings, NameRanksWithoutSamples) {
  EXPECT_THAT(of({}, 2), IsEmpty());
  EXPECT_THAT(of({}, 3), ElementsAre(HasSubstr("2 routing groups of 8 samples, so that 1 of the 3 "
                                               "ranks get no samples")));
}

TEST_F(RecipeWarnings, NameKeysOfScoresThatNothingGives) {
  EXPECT_THAT(of({"evaluate.every=never", "checkpoint.keep_best=2"}),
              ElementsAre(HasSubstr("checkpoint.keep_best: no eff")));
  EXPECT_THAT(of({"evaluate.every=never", "checkpoint.keep_best=0"}), IsEmpty());
  EXPECT_THAT(of({"evaluate.every=never"}), IsEmpty()) << "1 is the default";
}

TEST_F(RecipeWarnings, NameADiskThatIsTooSmall) {
  const auto bytes = static_cast<int64_t>(checked({}).counts.checkpoint.data_bytes);
  EXPECT_THAT(of({}, 1, bytes - 1), ElementsAre(HasSubstr("free: saving will fail")));
  EXPECT_THAT(of({}, 1, 4 * bytes - 1),
              ElementsAre(HasSubstr("too little for the 4 that lie there during a save")));
  EXPECT_THAT(of({}, 1, 4 * bytes), IsEmpty());
}

TEST_F(RecipeWarnings, OfADiskCountOnAResumeWhatIsThereAlready) {
  const std::string root = "run.root=" + scratch_.path();
  const std::vector<std::string> fresh{root}, resumed{root, "run.on_existing=resume"};
  const auto bytes = static_cast<int64_t>(checked({}).counts.checkpoint.data_bytes);
  EXPECT_THAT(of(resumed, 1, 4 * bytes - 1), ElementsAre(HasSubstr("too little for the 4 that")));
  for (const char* step : {"step-00000008", "step-00000016", "step-00000024"}) {
    std::filesystem::create_directories(
        scratch_.file(checked({}).loaded.options.run.name + "/ckpt/" + step));
  }
  EXPECT_THAT(of(fresh, 1, 4 * bytes - 1), ElementsAre(HasSubstr("too little for the 4 that")));
  EXPECT_THAT(of(resumed, 1, bytes), IsEmpty());
  EXPECT_THAT(of(resumed, 1, bytes - 1), ElementsAre(HasSubstr("free: saving will fail")));
  std::filesystem::remove(
      scratch_.file(checked({}).loaded.options.run.name + "/ckpt/step-00000008"));
  EXPECT_THAT(of(resumed, 1, 2 * bytes - 1),
              ElementsAre(HasSubstr("too little for 2 more beside the 2 of this run")));
}

TEST_F(RecipeWarnings, OfAResumeNameADurationThatEndsBeforeItsCheckpoint) {
  const auto of_resume = [&](const std::string& duration, const char* on_existing = "resume") {
    return resume_warnings(checked({"run.root=" + scratch_.path(), "train.duration=" + duration,
                                    fmt::format("run.on_existing={}", on_existing)}));
  };
  EXPECT_THAT(of_resume("40step"), IsEmpty());
  for (const char* step : {"step-00000008", "step-00000080"}) {
    std::filesystem::create_directories(
        scratch_.file(checked({}).loaded.options.run.name + "/ckpt/" + step));
  }
  EXPECT_THAT(of_resume("40step"), ElementsAre(HasSubstr("train.duration ends at step 40, and the "
                                                         "checkpoint is of step 80: nothing is")));
  EXPECT_THAT(of_resume("80step"), IsEmpty());
  EXPECT_THAT(of_resume("40step", "new"), IsEmpty());
  EXPECT_THAT(of_resume("2ep"), IsEmpty()) << "the data tell how long an epoch is";
}

TEST_F(RecipeWarnings, OfMissingInputsNameVariablesFilesAndFolders) {
  const std::string here = " in the working directory " + std::filesystem::current_path().string();
  EXPECT_THAT(missing_inputs(checked({})), IsEmpty());
  EXPECT_THAT(missing_inputs(checked({"data={source: cifar, path: '${env:NOT_SET}'}"})),
              ElementsAre("data.path: ${env:NOT_SET} is not set"));
  EXPECT_THAT(missing_inputs(checked({"data={source: cifar, path: nowhere/cifar}"})),
              ElementsAre("data: nowhere/cifar: no such folder" + here));
  std::filesystem::create_directory(scratch_.file("data"));
  testing::write_file(scratch_.file("data/data_batch_1.bin"), "a record");
  EXPECT_THAT(
      missing_inputs(checked({"data={source: cifar, path: " + scratch_.file("data") +
                                  ", train: {files: [data_batch_1.bin]}}",
                              "model.init_from=no/run"})),
      ElementsAre("data: " + scratch_.file("data/test_batch.bin") + ": no such file or folder",
                  "model.init_from: no/run: no such file or folder" + here));
}

TEST_F(RecipeWarnings, OfMissingInputsNameWhatIsEmpty) {
  const auto of = [this](const std::string& source) {
    return missing_inputs(checked({"data={" + source + ", path: " + scratch_.file("data") + "}"}));
  };
  for (const char* folder :
       {"data", "data/train", "data/train/cat", "data/train/dog", "data/val"}) {
    std::filesystem::create_directory(scratch_.file(folder));
  }
  EXPECT_THAT(of("source: image_folder, classes: 2"),
              ElementsAre("data: " + scratch_.file("data/train") + ": is empty",
                          "data: " + scratch_.file("data/val") + ": is empty"));
  testing::write_file(scratch_.file("data/train/cat/1.png"), "an image");
  testing::write_file(scratch_.file("data/val/1.tar"), "a shard");
  EXPECT_THAT(of("source: image_folder, classes: 2"), IsEmpty());
  EXPECT_THAT(of("source: tar_shards, classes: 2"),
              ElementsAre(StartsWith("data: " + scratch_.file("data/train/*.tar") + ": no such")));
}

TEST_F(RecipeWarnings, OfMissingInputsNameTheFilesOfATokenizer) {
  testing::write_file(scratch_.file("train.txt"), "a text");
  testing::write_file(scratch_.file("valid.txt"), "a text");
  testing::write_file(
      scratch_.file("text.yaml"),
      "data: {source: text, path: " + scratch_.file("") +
          ", sequence: 8, train: {files: [train.txt]}, valid: {files: [valid.txt]}, "
          "tokenizer: {name: gpt2, vocab: " +
          scratch_.file("vocab.json") + ", merges: " + scratch_.file("train.txt") +
          "}}\n"
          "model: {backbone: gpt2, width: 8, depth: 1, heads: 2}\n"
          "task: {name: lm}\ntrain: {duration: 1step, batch: 8}\n");
  EXPECT_THAT(missing_inputs(check_recipe({scratch_.file("text.yaml"), {}, {}},
                                          config::UnsetVariable::kKeep, 1)),
              ElementsAre("data: " + scratch_.file("vocab.json") + ": no such file or folder"));
}

}  // namespace
}  // namespace shoal
