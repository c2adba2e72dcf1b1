#include "parallel/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/checkpoint/checkpoint_load.h"
#include "runtime/base/error.h"
#include "tests/parallel/checkpoint/checkpoint_fixture.h"
#include "tests/support/failing_file_system.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FailingFileSystem;
using ::testing::HasSubstr;
using testing::read_file;
using testing::run_ranks;
using testing::ToyState;
using testing::write_file;

class CheckpointRanks : public testing::CheckpointTest {
 protected:
  static Error load_error(const std::string& path, const std::string& left_out) {
    try {
      run_ranks(2, [&](Communicator& world) {
        ToyState state(world.rank(), 2, 0);
        state.left_out = left_out;
        load_checkpoint(path, state, world);
      });
    } catch (const Error& error) {
      return error;
    }
    return Error(ExitCode::kOk, "");
  }
};

TEST_F(CheckpointRanks, LoadsOnAnyNumberOfRanksWithTheSameDigest) {
  const std::string path = save(4, 4);
  const std::string digest = content_digest(CheckpointReader(path));
  const std::pair<int64_t, int64_t> layouts[] = {{1, 1}, {2, 2}, {2, 1}, {3, 3}, {4, 4}, {4, 2}};
  for (const auto& [ranks, expert_ranks] : layouts) {
    run_ranks(ranks, [&, expert_ranks = expert_ranks](Communicator& world) {
      ToyState state(world.rank(), expert_ranks, 0);
      const LoadedCheckpoint loaded = load_checkpoint(path, state, world);
      EXPECT_TRUE(state.equals(ToyState(world.rank(), expert_ranks, 1)));
      EXPECT_EQ(loaded.manifest.step, 10);
      EXPECT_EQ(loaded.manifest.samples, 80);
      EXPECT_EQ(loaded.manifest.recipe, "train: {batch: 8}\n");
      EXPECT_EQ(state_digest(state, 10, 80, world), digest);
    });
  }
}

TEST_F(CheckpointRanks, KeepsTheDigestThroughAChainOfLayouts) {
  std::string path = save(4, 4);
  const std::string digest = content_digest(CheckpointReader(path));
  for (const int64_t ranks : {2, 3, 1, 4}) {
    run_ranks(ranks, [&](Communicator& world) {
      ToyState state(world.rank(), ranks, 0);
      load_checkpoint(path, state, world);
      CheckpointWriter::Options elsewhere = options();
      elsewhere.folder = scratch_.file("on" + std::to_string(ranks));
      elsewhere.run_id = "run-b";
      CheckpointWriter writer(elsewhere, world, posix_);
      const SaveOutcome outcome = writer.save(state, {10, 80, std::nullopt});
      EXPECT_EQ(outcome.error, "");
      world.barrier();
      if (world.rank() == 0) path = outcome.path;
    });
    EXPECT_EQ(content_digest(CheckpointReader(path)), digest);
  }
}

TEST_F(CheckpointRanks, ListsEachExpertOnceByItsGlobalId) {
  const CheckpointReader reader(save(4, 2));
  int64_t experts = 0;
  for (const ManifestTensor& tensor : reader.manifest().tensors) {
    if (tensor.name.starts_with("block.experts.")) ++experts;
  }
  EXPECT_EQ(experts, ToyState::kNumExperts);
  for (int64_t unit = 0; unit < ToyState::kNumExperts; ++unit) {
    const ManifestTensor* tensor =
        reader.manifest().find_tensor("block.experts." + std::to_string(unit) + ".fc1.weight");
    ASSERT_NE(tensor, nullptr);
    EXPECT_THAT(tensor->shape, ElementsAre(2, 3));
  }
  EXPECT_EQ(reader.manifest().files.size(), 4u);
}

TEST(StateEntries, AreTheSameOnTheMetaDevice) {
  ToyState state(0, 1, 1);
  const std::string listed = describe_entries(list_state(state).entries());
  for (torch::Tensor* value : {&state.weight, &state.experts, &state.moments}) {
    *value = value->to(torch::kMeta);
  }
  EXPECT_EQ(describe_entries(list_state(state).entries()), listed);
}

TEST_F(CheckpointRanks, ARankWithNothingToWriteWritesNoFile) {
  struct OneTensor : Stateful {
    torch::Tensor value = torch::ones({3});
    void visit_state(StateVisitor& visitor) override { visitor.tensor({"w", value}); }
  };
  run_ranks(3, [&](Communicator& world) {
    OneTensor state;
    CheckpointWriter writer(options(), world, posix_);
    EXPECT_TRUE(writer.save(state, {1, 8, std::nullopt}).ok);
    state.value.zero_();
    world.barrier();
    const LoadedCheckpoint loaded = load_checkpoint(ckpt_ + "/" + step_folder(1), state, world);
    EXPECT_EQ(loaded.manifest.files.size(), 1u);
    EXPECT_EQ(state.value.sum().item<double>(), 3.0);
  });
}

TEST_F(CheckpointRanks, SavesAStateWithoutTensors) {
  struct OneValue : Stateful {
    int64_t value = 5;
    void visit_state(StateVisitor& visitor) override { visitor.integer("v", value); }
  };
  run_ranks(2, [&](Communicator& world) {
    OneValue state;
    CheckpointWriter writer(options(), world, posix_);
    EXPECT_TRUE(writer.save(state, {1, 8, std::nullopt}).ok);
    state.value = 0;
    world.barrier();
    load_checkpoint(ckpt_ + "/" + step_folder(1), state, world);
    EXPECT_EQ(state.value, 5);
  });
}

TEST_F(CheckpointRanks, RefusesAStateThatLacksAnyItem) {
  const std::string whole = save(2, 2);
  for (const std::string& item : ToyState::item_names()) {
    const Error extra = load_error(whole, item);
    EXPECT_EQ(extra.code(), ExitCode::kMismatch) << item;
    run_ranks(1, [&](Communicator& world) {
      ToyState state(0, 1, 1);
      state.left_out = item;
      CheckpointWriter::Options elsewhere = options();
      elsewhere.folder = scratch_.file("without");
      CheckpointWriter writer(elsewhere, world, posix_);
      std::filesystem::remove_all(elsewhere.folder);
      EXPECT_TRUE(writer.save(state, {1, 8, std::nullopt}).ok);
    });
    const Error missing = load_error(scratch_.file("without/step-00000001"), "");
    EXPECT_EQ(missing.code(), ExitCode::kMismatch) << item;
    EXPECT_THAT(missing.what(), HasSubstr(item.substr(0, item.find('*')))) << item;
  }
}

TEST_F(CheckpointRanks, AValueThatNotEveryCheckpointHasMayBeMissingOnEitherSide) {
  struct Fingerprinted : Stateful {
    bool is_listed = true;
    int64_t steps = 1;
    std::string fingerprint;
    void visit_state(StateVisitor& visitor) override {
      visitor.integer("steps", steps);
      if (is_listed) visitor.text("data.fingerprint", fingerprint);
    }
  };
  run_ranks(1, [&](Communicator& world) {
    Fingerprinted state;
    CheckpointWriter writer(options(), world, posix_);
    state.is_listed = false;
    EXPECT_TRUE(writer.save(state, {1, 8, std::nullopt}).ok);
    state.is_listed = true;
    state.fingerprint = "train: a.bin 10";
    EXPECT_TRUE(writer.save(state, {2, 16, std::nullopt}).ok);

    state.fingerprint = "of now";
    state.steps = 0;
    load_checkpoint(ckpt_ + "/" + step_folder(1), state, world);
    EXPECT_EQ(state.fingerprint, "of now");
    EXPECT_EQ(state.steps, 1);
    load_checkpoint(ckpt_ + "/" + step_folder(2), state, world);
    EXPECT_EQ(state.fingerprint, "train: a.bin 10");
    state.is_listed = false;
    EXPECT_NO_THROW(load_checkpoint(ckpt_ + "/" + step_folder(2), state, world));
  });
}

TEST_F(CheckpointRanks, LeavesWhatIsNotAskedForOnRequest) {
  const std::string path = save(2, 2);
  run_ranks(1, [&](Communicator& world) {
    ToyState state(0, 1, 0);
    state.left_out = "optimizer.block.experts.*.fc1.weight.m";
    load_checkpoint(path, state, world, {.ignore_extra = true});
    EXPECT_TRUE(state.weight.equal(ToyState(0, 1, 1).weight));
    EXPECT_TRUE(state.moments.equal(ToyState(0, 1, 0).moments));
  });
}

TEST_F(CheckpointRanks, RefusesOtherShapesAndDtypesBeforeReading) {
  const std::string path = save(2, 2);
  run_ranks(1, [&](Communicator& world) {
    ToyState state(0, 1, 0);
    state.bias = torch::zeros({6}, torch::kBFloat16);
    state.weight = torch::zeros({7, 3}, torch::kFloat);
    try {
      load_checkpoint(path, state, world);
      ADD_FAILURE() << "loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kMismatch);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("'bias' is BF16 [5] in it, BF16 [6] here"),
                                      HasSubstr("'weight' is F64 [7, 3] in it, F32 [7, 3] here")));
    }
    EXPECT_EQ(state.count.item<int64_t>(), 0);
  });
}

TEST_F(CheckpointRanks, KeepsTheStateAsItWasWhenTheSaveBegan) {
  run_ranks(2, [&](Communicator& world) {
    ToyState state(world.rank(), 2, 1);
    CheckpointWriter writer(options(), world, posix_);
    EXPECT_FALSE(writer.in_flight());
    writer.begin(state, {10, 80, std::nullopt});
    EXPECT_TRUE(writer.in_flight());
    EXPECT_ANY_THROW(writer.begin(state, {11, 88, std::nullopt}));
    state.weight.zero_();
    state.experts.zero_();
    state.steps = -1;
    const SaveOutcome outcome = writer.commit();
    EXPECT_TRUE(writer.written());
    EXPECT_TRUE(outcome.ok);
    EXPECT_GT(outcome.bytes, 1000);
    load_checkpoint(outcome.path, state, world);
    EXPECT_TRUE(state.equals(ToyState(world.rank(), 2, 1)));
  });
}

TEST_F(CheckpointRanks, RefusesValuesThatDifferBetweenRanks) {
  run_ranks(3, [&](Communicator& world) {
    ToyState state(world.rank(), 3, 1);
    if (world.rank() == 2) state.loss = 7;
    CheckpointWriter writer(options(), world, posix_);
    try {
      writer.begin(state, {10, 80, std::nullopt});
      ADD_FAILURE() << "saved";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kDivergence);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("loss = 0x1.5"), HasSubstr("loss = 0x1.cp+2"),
                                      HasSubstr("rank 2")));
    }
  });
}

TEST_F(CheckpointRanks, FallsBackToTheNewestValidOneOnAllRanks) {
  save(2, 2, 10, 1);
  const std::string newest = save(2, 2, 20, 2);
  const std::string unfinished = ckpt_ + "/step-00000030";
  std::filesystem::copy(newest, unfinished);
  std::filesystem::remove(unfinished + "/" + kManifestName);
  std::string shard = newest + "/" + shard_name(1, 2);
  std::string bytes = read_file(shard);
  bytes.back() ^= 4;
  write_file(shard, bytes);
  std::vector<std::string> warnings;
  run_ranks(3, [&](Communicator& world) {
    ToyState state(world.rank(), 3, 0);
    const auto loaded = load_newest(ckpt_, state, world,
                                    [&](const std::string& text) { warnings.push_back(text); });
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->manifest.step, 10);
    EXPECT_TRUE(state.equals(ToyState(world.rank(), 3, 1)));
    EXPECT_EQ(read_newest_manifest(ckpt_, world)->step, 20);
  });
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("step-00000030"), HasSubstr(kManifestName)));
  EXPECT_THAT(warnings[1], AllOf(HasSubstr(shard_name(1, 2)), HasSubstr("tensor '")));
  std::filesystem::remove(ckpt_ + "/step-00000010/" + kManifestName);
  run_ranks(2, [&](Communicator& world) {
    ToyState state(world.rank(), 2, 0);
    EXPECT_THROW(load_newest(ckpt_, state, world, [](const std::string&) {}), CheckpointError);
    EXPECT_EQ(load_newest(scratch_.file("none"), state, world, {}), std::nullopt);
  });
}

TEST_F(CheckpointRanks, DoesNotPassOverWhatANewerShoalWrote) {
  save(2, 2, 10);
  const std::string manifest = save(2, 2, 20) + "/" + kManifestName;
  std::string text = read_file(manifest);
  text.replace(text.find("_checkpoint\":1"), 14, "_checkpoint\":3");
  write_file(manifest, text);
  run_ranks(2, [&](Communicator& world) {
    ToyState state(world.rank(), 2, 0);
    const auto expect_refusal = [&](const std::function<void()>& work) {
      try {
        work();
        ADD_FAILURE() << "a checkpoint of a newer format was passed over";
      } catch (const CheckpointError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr(manifest), HasSubstr("format 3")));
        EXPECT_THAT(error.hint(), HasSubstr("older checkpoint"));
      }
    };
    expect_refusal([&] { load_newest(ckpt_, state, world, [](const std::string&) {}); });
    expect_refusal([&] { read_newest_manifest(ckpt_, world); });
  });
}

TEST_F(CheckpointRanks, RemovesOldCheckpointsButNotTheResumeSource) {
  save(2, 2, 10);
  run_ranks(2, [&](Communicator& world) {
    ToyState state(world.rank(), 2, 2);
    CheckpointWriter::Options keep_one = options();
    keep_one.keep_last = 1;
    keep_one.resumed_step = 10;
    CheckpointWriter writer(keep_one, world, posix_);
    for (const int64_t step : {20, 30, 40}) {
      EXPECT_TRUE(writer.save(state, {step, step * 8, step == 20 ? 0.9 : 0.5}).ok);
    }
    EXPECT_FALSE(writer.save(state, {40, 320, std::nullopt}).wrote);
  });
  EXPECT_THAT(list_checkpoints(ckpt_), ElementsAre(10, 20, 40));
  EXPECT_EQ(CheckpointReader(ckpt_ + "/step-00000020").manifest().parent, "step-00000010");
  EXPECT_EQ(CheckpointReader(ckpt_ + "/step-00000040").manifest().parent, "step-00000030");
}

TEST_F(CheckpointRanks, TellsOnItsOwnThreadOfOldCheckpointsThatStay) {
  std::vector<std::string> warnings;
  int64_t removal = -1;
  for (const bool is_failing : {false, true}) {  // the first time to learn which call removes
    std::filesystem::remove_all(ckpt_);
    save(1, 1, 5);
    run_ranks(1, [&](Communicator& world) {
      FailingFileSystem files;
      files.fail_at = is_failing ? removal : -1;
      CheckpointWriter::Options keep_one = options();
      keep_one.keep_last = 1;
      keep_one.warn = [&warnings, own = std::this_thread::get_id()](const std::string& text) {
        EXPECT_EQ(std::this_thread::get_id(), own);
        warnings.push_back(text);
      };
      ToyState state(0, 1, 2);
      CheckpointWriter writer(keep_one, world, files);
      EXPECT_TRUE(writer.save(state, {20, 160, std::nullopt}).ok);
      const auto call = std::find_if(files.log().begin(), files.log().end(), [](const auto& text) {
        return text.starts_with("rename") && text.ends_with(".old-step-00000005");
      });
      ASSERT_NE(call, files.log().end());
      removal = call - files.log().begin();
    });
    EXPECT_EQ(warnings.size(), is_failing ? 1u : 0u);
  }
  EXPECT_THAT(warnings,
              ElementsAre(AllOf(HasSubstr("older checkpoints stay"), HasSubstr("step-00000005"))));
  EXPECT_THAT(list_checkpoints(ckpt_), ElementsAre(5, 20));
}

TEST_F(CheckpointRanks, DoesNotSaveTheStepItResumedFromAgain) {
  save(1, 1, 10);
  run_ranks(1, [&](Communicator& world) {
    ToyState state(0, 1, 1);
    CheckpointWriter::Options resumed = options();
    resumed.resumed_step = 10;
    FailingFileSystem files;
    CheckpointWriter writer(resumed, world, files);
    const SaveOutcome outcome = writer.save(state, {10, 80, std::nullopt});
    EXPECT_TRUE(outcome.ok);
    EXPECT_EQ(outcome.path, ckpt_ + "/step-00000010");
    EXPECT_EQ(files.calls(), 0);
  });
}

TEST_F(CheckpointRanks, LooksForSpaceBeforeItWrites) {
  run_ranks(2, [&](Communicator& world) {
    FailingFileSystem files;
    files.free_bytes_answer = 1000;
    ToyState state(world.rank(), 2, 1);
    CheckpointWriter writer(options(), world, files);
    const SaveOutcome outcome = writer.save(state, {10, 80, std::nullopt});
    EXPECT_FALSE(outcome.ok);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("step 10"), HasSubstr("1000 free")));
  });
  EXPECT_FALSE(std::filesystem::exists(ckpt_));
}

}  // namespace
}  // namespace shoal
