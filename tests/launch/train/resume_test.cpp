#include "launch/train/resume.h"
#include "launch/data/recipe_source.h"
#include "launch/weights/load_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/state_list.h"
#include "sparse/sparse_model.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/failing_reads.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::equality_recipe;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;
using testing::ScratchFolder;

Recipe recipe_of(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), "optimizer={name: adamw, lr: 1e-2}");
  return equality_recipe(overrides);
}

/// A session of its own in a run folder of its own.
struct TrainingRun {
  TrainingRun(std::string path, const std::vector<std::string>& overrides)
      : recipe(recipe_of(overrides)),
        data(open_split(make_source(recipe), Split::kTrain)),
        session(recipe, testing::model_on(recipe, data, grid), data, grid),
        folder{std::move(path)},
        log(folder.path + ".log", 0, nullptr) {
    std::filesystem::create_directories(folder.checkpoints());
  }

  CheckpointWriter::Options begin(bool override_fixed = false) {
    return begin_or_resume(session, recipe, folder, {.override_fixed = override_fixed, .log = log});
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
  OpenSplit data;
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

TEST_F(LoadRun, WarnsWhereProductsOfGpusGetAnotherPrecision) {
  TrainingRun(scratch_.file("run"), {}).train(2);
  TrainingRun second(scratch_.file("run"), {"run.tf32=true", "run.hang_timeout=never"});
  second.folder.resume = true;
  EXPECT_EQ(second.begin().resumed_step, 2);
  EXPECT_THAT(read_file(second.folder.path + ".log"),
              AllOf(HasSubstr("run.tf32  checkpoint: false   recipe: true"),
                    Not(HasSubstr("run.hang_timeout"))));
}

TEST_F(LoadRun, ResumesFromTheNewestThatCanBeReadOnlyIfTold) {
  std::string newest;
  {
    TrainingRun first(scratch_.file("run"), {});
    first.train(2);
    newest = first.train(1);
  }
  TrainingRun second(scratch_.file("run"), {});
  second.folder.resume = true;
  const testing::FailingReads failing(newest + "/shard-", EACCES);
  EXPECT_THROW(second.begin(), StorageError);
  EXPECT_TRUE(std::filesystem::exists(newest));
  EXPECT_EQ(second.begin(/*override_fixed=*/true).resumed_step, 2);
  EXPECT_EQ(second.session.steps_done(), 2);
  EXPECT_TRUE(std::filesystem::exists(newest + ".unreadable"));
  EXPECT_THAT(read_file(second.folder.path + ".log"),
              AllOf(HasSubstr("cannot be read"), HasSubstr(newest + ".unreadable")));
}

TEST_F(LoadRun, ParameterRulesResumeBitByBitAndMayNotChange) {
  const auto rules = [](const std::string& scale) {
    return std::vector<std::string>{
        "optimizer.rules=[{match: '*.stem.*', freeze: true}, {match: "
        "'*.experts.*', lr_scale: " +
        scale + "}]"};
  };
  TrainingRun straight(scratch_.file("straight"), rules("0.5"));
  straight.train(5);
  TrainingRun first(scratch_.file("run"), rules("0.5"));
  first.train(3);
  TrainingRun second(scratch_.file("run"), rules("0.5"));
  second.folder.resume = true;
  second.begin();
  for (int step = 0; step < 2; ++step) second.session.step({});
  EXPECT_EQ(second.digest(), straight.digest());
  int64_t num_moments = 0;
  for (const StateEntry& entry : list_state(second.session).tensors) {
    const std::string& name = entry.entry.name;
    if (!name.starts_with("optimizer.")) continue;
    ++num_moments;
    EXPECT_EQ(name.find(".stem."), std::string::npos) << name;
  }
  EXPECT_GT(num_moments, 0);

  TrainingRun changed(scratch_.file("run"), rules("0.25"));
  changed.folder.resume = true;
  try {
    changed.begin();
    ADD_FAILURE() << "other rules were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kMismatch);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("optimizer.rules[1].lr_scale"), HasSubstr("0.25")));
  }
}

/// A resume of a run whose masks rest from step 4 of 8 on, if `until` is 50%.
struct LongerSparseRun : TrainingRun {
  LongerSparseRun(const std::string& path, const std::string& until,
                  const std::string& duration = "16step")
      : TrainingRun(path,
                    {"sparsity={density: 0.5, rule: {name: set, every: 1step, decay: constant, "
                     "until: " +
                         until + "}}",
                     "train.duration=" + duration}) {}

  std::string resume(bool override_fixed = false) {
    folder.resume = true;
    writer = begin(override_fixed);
    return read_file(folder.path + ".log");
  }
  bool changes_masks() {
    const torch::Tensor before = session.model().sparse->masks().mask(0).clone();
    for (int step = 0; step < 2; ++step) session.step({});
    return !session.model().sparse->masks().mask(0).equal(before);
  }
  void save() {
    CheckpointWriter(writer, *grid.world, files)
        .save(session, {session.steps_done(), session.samples_done(), std::nullopt});
  }

  CheckpointWriter::Options writer;
};

TEST_F(LoadRun, MasksAtRestStaySoInALongerTrainingButByOverride) {
  const std::string path = scratch_.file("run");
  LongerSparseRun(path, "50%", "8step").train(6);
  {
    LongerSparseRun overridden(path, "50%");
    EXPECT_THAT(overridden.resume(/*override_fixed=*/true),
                AllOf(HasSubstr("sparsity.rule.until: 50% is step 8 instead of 4"),
                      ::testing::Not(HasSubstr("masks rest"))));
    EXPECT_TRUE(overridden.changes_masks());
  }
  std::filesystem::remove(path + ".log");
  LongerSparseRun second(path, "50%");
  EXPECT_THAT(second.resume(), AllOf(HasSubstr("sparsity.rule.until: 50% is step 8 instead of 4"),
                                     HasSubstr("masks rest since step 4 and stay")));
  EXPECT_FALSE(second.changes_masks());
  second.save();
  LongerSparseRun third(path, "50%", "32step");
  third.resume();
  EXPECT_FALSE(third.changes_masks()) << "though they would move up to step 16";
}

TEST_F(LoadRun, MasksThatDoNotRestYetGoOnInALongerTraining) {
  for (const char* until : {"100%", "75%"}) {
    const std::string path = scratch_.file(std::string("run") + until[0]);
    LongerSparseRun(path, until, "8step").train(until[0] == '1' ? 8 : 5);
    LongerSparseRun longer(path, until);
    EXPECT_THAT(longer.resume(), HasSubstr("sparsity.rule.until"));
    EXPECT_TRUE(longer.changes_masks()) << until;
  }
}

TEST_F(LoadRun, AnOlderCheckpointInPlaceOfADamagedOneMustBeOfTheRecipeToo) {
  TrainingRun first(scratch_.file("run"), {});
  first.train(2);
  const std::vector<std::string> rules{"optimizer.rules=[{match: '*.experts.*', lr_scale: 0.5}]"};
  TrainingRun second(scratch_.file("run"), rules);
  const std::string newest = second.train(4);
  for (const auto& file : std::filesystem::directory_iterator(newest)) {
    if (file.path().extension() != ".safetensors") continue;
    std::filesystem::resize_file(file.path(), file.file_size() - 1);
  }
  TrainingRun third(scratch_.file("run"), rules);
  third.folder.resume = true;
  try {
    third.begin();
    ADD_FAILURE() << "a checkpoint of other rules was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kMismatch);
    EXPECT_THAT(error.what(), HasSubstr("optimizer.rules"));
  }
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
  TrainingRun nowhere(scratch_.file("nowhere"), {"model.init_from=" + scratch_.file("traned")});
  try {
    nowhere.load_weights();
    ADD_FAILURE() << "what is not there was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("did you mean '" + scratch_.file("trained") + "'?"));
  }
}

TEST_F(LoadRun, InitFromTellsKeysWithWhichWeightsComputeSomethingElse) {
  TrainingRun trained(scratch_.file("trained"), testing::gpt2());
  trained.train(1);
  const auto start = [&](const std::string& key, const std::string& take = "") {
    const std::string from = "from: " + trained.folder.path + take;
    TrainingRun run(scratch_.file("started"),
                    testing::joined(testing::gpt2(), {key, "model.init_from={" + from + "}"}));
    return load_initial_weights(run.session, run.recipe);
  };
  const std::string told = "; the model differs from the one they were trained in:";
  EXPECT_THAT(start("model.dropout=0"), Not(HasSubstr(told)));
  for (const std::string take : {"", ", take: [\"*.attention.*\"]"}) {
    EXPECT_THAT(start("model.heads=1", take),
                HasSubstr(told + "\n  model.heads  checkpoint: 2   recipe: 1"))
        << take;
  }
  EXPECT_THAT(
      start("model.position=rope"),
      AllOf(HasSubstr("\n  model.position  checkpoint: learned   recipe: rope\n  1 tensor of "
                      "the checkpoint without a place in the model: backbone.positions")));
}

TEST_F(LoadRun, InitFromTakesSomeWeightsUnderOtherNames) {
  TrainingRun trained(scratch_.file("trained"), {});
  trained.train(2);
  const std::string from = "from: " + trained.folder.path;
  // Block 1 has the experts, block 0 none: of block 1 the first token stage, under its own name.
  TrainingRun some(scratch_.file("some"),
                   {"run.seed=2", "model.init_from={" + from +
                                      ", take: [\"backbone.blocks.1.moe_s.*\", "
                                      "backbone.norm.weight], "
                                      "rename: {backbone.norm.: backbone.norm.}}"});
  TrainingRun fresh(scratch_.file("fresh"), {"run.seed=2"});
  const std::string report = load_initial_weights(some.session, some.recipe);
  const StateList now = list_state(some.session), source = list_state(trained.session),
                  random = list_state(fresh.session);
  int64_t num_taken = 0;
  for (const StateEntry& entry : now.tensors) {
    const std::string& name = entry.entry.name;
    const bool is_taken =
        name.starts_with("backbone.blocks.1.moe_s.") || name == "backbone.norm.weight";
    num_taken += is_taken ? 1 : 0;
    EXPECT_TRUE(entry.value.equal((is_taken ? source : random).find(name).value)) << name;
  }
  EXPECT_GT(num_taken, 4);
  EXPECT_THAT(report,
              AllOf(HasSubstr(": " + std::to_string(num_taken) + " weights taken"),
                    HasSubstr("with random values: backbone.blocks.0.channel_mlp.fc1.bias, "),
                    HasSubstr(" more")));
}

TEST_F(LoadRun, InitFromRenamesBeforeItLooksForAPlace) {
  TrainingRun trained(scratch_.file("trained"), {});
  trained.train(1);
  const std::string from = "from: " + trained.folder.path;
  TrainingRun moved(scratch_.file("moved"),
                    {"run.seed=2", "model.init_from={" + from +
                                       ", take: [\"backbone.blocks.0.token_mlp.fc1.*\"], rename: "
                                       "{backbone.blocks.0.token_mlp.fc1.: nowhere.}}"});
  try {
    load_initial_weights(moved.session, moved.recipe);
    ADD_FAILURE() << "init_from matched no tensor and raised no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kMismatch);
    EXPECT_THAT(error.what(), HasSubstr("no weight of"));
  }
  TrainingRun misspelt(scratch_.file("misspelt"),
                       {"model.init_from={" + from + ", take: [\"backbon.*\"]}"});
  try {
    load_initial_weights(misspelt.session, misspelt.recipe);
    ADD_FAILURE() << "a pattern that matches nothing was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no tensor of the checkpoint is called 'backbon.*'"));
  }
  TrainingRun idle(scratch_.file("idle"),
                   {"model.init_from={" + from + ", rename: {typo.: backbone.}}"});
  try {
    load_initial_weights(idle.session, idle.recipe);
    ADD_FAILURE() << "a rename that matches nothing was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rename: no tensor taken has a name that begins with 'ty"));
  }
}

TEST_F(LoadRun, RefusesToResumeOnOtherDataUnlessToldTo) {
  const auto write_images = [this](const std::string& name, int64_t records, char pixel) {
    std::string bytes;
    for (int64_t i = 0; i < records; ++i) {
      bytes += static_cast<char>(i % 10);
      bytes += std::string(3072, pixel);
    }
    testing::write_file(scratch_.file(name), bytes);
  };
  write_images("a.bin", 40, 'a');
  write_images("b.bin", 8, 'b');
  const std::vector<std::string> overrides{"data={source: cifar, path: " + scratch_.path() +
                                           ", train: {files: [a.bin]}, valid: {files: [b.bin]}}"};
  TrainingRun first(scratch_.file("run"), overrides);
  first.train(1);
  const auto resume = [&](bool override_fixed) {
    TrainingRun run(scratch_.file("run"), overrides);
    run.folder.resume = true;
    begin_or_resume(run.session, run.recipe, run.folder,
                    {.override_fixed = override_fixed, .log = run.log});
  };
  EXPECT_NO_THROW(resume(false));
  for (const int64_t records : {40, 48}) {  // another file of the same size, and of another
    write_images("a.bin", records, 'c');
    try {
      resume(false);
      ADD_FAILURE() << "other data were accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kMismatch);
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("checkpoint: a.bin 122920 "),
                        HasSubstr("now:        a.bin " + std::to_string(records * 3073) + " ")));
    }
    EXPECT_NO_THROW(resume(true));
  }
}

TEST_F(LoadRun, ACheckpointNamesItsTokenizerAndIsRefusedWithAnother) {
  TrainingRun first(scratch_.file("run"), testing::gpt2());
  const Manifest saved = CheckpointReader(first.train(1)).manifest();
  EXPECT_NO_THROW(require_own_tokenizer(saved, first.data.tokenizer));
  EXPECT_NO_THROW(require_own_tokenizer(saved, ""));
  EXPECT_NO_THROW(require_own_tokenizer(Manifest{}, "bytes"));
  try {
    require_own_tokenizer(saved, "gpt2:12ab");
    ADD_FAILURE() << "another tokenizer was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kMismatch);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("checkpoint: bytes"), HasSubstr("now:        gpt2:12ab")));
  }
}

TEST_F(LoadRun, ExpertsOfHashedTokensStartWithTheirOwnSeedOnly) {
  const std::string hash = testing::channel_moe("name: hash, k: 1");
  TrainingRun trained(scratch_.file("trained"), {hash});
  trained.train(1);
  const auto start = [&](const std::vector<std::string>& overrides, const std::string& take = "") {
    TrainingRun run(scratch_.file("started"),
                    testing::joined({"run.seed=2",
                                     "model.init_from={from: " + trained.folder.path + take + "}"},
                                    overrides));
    run.load_weights();
  };
  for (const std::string take : {"", ", take: [\"*.moe_c.*\"]"}) {
    try {
      start({hash}, take);
      ADD_FAILURE() << "experts were given the tokens of other experts";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kMismatch);
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("moe_c"), HasSubstr("trained with run.seed 1; with 2 ")));
      EXPECT_EQ(error.hint(), "set run.seed=1");
    }
  }
  EXPECT_NO_THROW(start({hash, "run.seed=1"}));
  EXPECT_NO_THROW(start({hash}, ", take: [backbone.norm.weight]"));
  EXPECT_NO_THROW(start({testing::channel_moe("name: top_k, k: 1")}, ", take: [\"*.experts.*\"]"));
  // The layer's name keys the draws as well.
  const std::vector<std::string> in_front{hash, "run.seed=1", "model.positions=first"};
  try {
    start(in_front,
          ", take: [\"backbone.blocks.1.moe_c.experts.*\"], rename: "
          "{backbone.blocks.1.: backbone.blocks.0.}");
    ADD_FAILURE() << "experts were given the tokens of other experts";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kMismatch);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("become those of blocks.0.moe_c"),
                                    HasSubstr("the experts of blocks.1.moe_c")));
    EXPECT_EQ(error.hint(), "take these experts without renaming them");
  }
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
