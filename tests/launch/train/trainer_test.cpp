#include "launch/train/trainer.h"
#include "launch/data/recipe_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "launch/check/check_recipe.h"
#include "launch/check/recipe_notes.h"
#include "launch/pages/sample_sheet.h"
#include "parallel/checkpoint/checkpoint_files.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/forwarding_communicator.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/train_run.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::evaluations;
using ::testing::HasSubstr;
using testing::RunData;
using testing::RunEnd;
using testing::ScratchFolder;
using testing::train_run;
using testing::train_run_on;

/// Another set's samples. Reading the one at `index` for the `times`-th time brings a signal.
class SignallingSet final : public SampleSet {
 public:
  SignallingSet(std::unique_ptr<const SampleSet> samples, int64_t index, int64_t times)
      : samples_(std::move(samples)), index_(index), left_(times) {}
  int64_t size() const override { return samples_->size(); }
  Sample read(int64_t index, int64_t epoch) const override {
    ++reads;
    if (index == index_ && --left_ == 0) std::raise(SIGTERM);
    return samples_->read(index, epoch);
  }
  mutable int64_t reads = 0;

 private:
  std::unique_ptr<const SampleSet> samples_;
  int64_t index_;
  mutable int64_t left_;
};

/// The loss is infinite, its gradient is finite; evaluations are not numbers.
class InfiniteTask final : public Task {
 public:
  struct Options {
    static constexpr auto fields() { return std::tuple{}; }
  };
  InfiniteTask(const Options&, const Context& context)
      : weight_(add_parameter("weight", {2}, context.build.tensor_options, Init::ones())) {}
  TrainOutput train(const Batch&) override {
    return {weight_.sum() + std::numeric_limits<double>::infinity(), {}};
  }
  torch::Tensor outputs(const Batch&) override { return weight_; }
  EvalOutput evaluate(const Batch& batch) override {
    return {{{"score", std::nan(""), static_cast<double>(batch.label_b.size(0))}}};
  }
  std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const override {
    return {{"score", mean_of(totals, "score")}};
  }
  ScoreRule score() const override { return {"score"}; }
  RateUnit unit() const override { return {"img"}; }

 private:
  torch::Tensor weight_;
};
const Registration<Task, InfiniteTask> registered_infinite{"infinite", "for this test"};

Recipe tiny_recipe(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"data.prefetch=0", "train.duration=6step"});
  return testing::equality_recipe(overrides);
}

RunEnd train_alone(const RunData& data, const Recipe& recipe, const std::string& folder) {
  const StopSignals signals;
  RankGrid grid = testing::self_grid();
  return train_run_on(data, recipe, folder, grid, signals);
}

std::vector<int64_t> saved_steps(const std::string& folder) {
  return list_checkpoints(folder + "/ckpt");
}

TEST(Trainer, AStopDuringAnEvaluationEndsItAndSaves) {
  const ScratchFolder scratch;
  const Recipe recipe =
      tiny_recipe({"evaluate.every=2step", "checkpoint.every=never", "data.valid.samples=80"});
  const auto source = make_source(recipe);
  auto samples = std::make_unique<SignallingSet>(source->open(Split::kValid), 20, 1);
  const SignallingSet& seen = *samples;
  const RunData data{open_split(source, Split::kTrain), {source, std::move(samples)}};
  const RunEnd end = train_alone(data, recipe, scratch.file("run"));
  EXPECT_EQ(end.result.code, ExitCode::kPreempted);
  EXPECT_EQ(end.result.last_step, 2);
  EXPECT_FALSE(end.result.evaluation.has_value());
  EXPECT_LE(seen.reads, 32);  // the batch of the signal and the one after it at most
  EXPECT_TRUE(evaluations(scratch.file("run"), "top1").empty());
  EXPECT_EQ(saved_steps(scratch.file("run")), std::vector<int64_t>{2});
}

/// A run whose evaluation after step 4 is cut by a signal, and its starts after that.
class OwedEvaluation : public ::testing::Test {
 protected:
  /// `signal_at`: the evaluation that a signal ends.
  RunEnd train(const std::string& folder, int64_t signal_at,
               std::vector<std::string> overrides = {}, bool evaluates_first = false) {
    overrides.insert(overrides.begin(), {"evaluate.every=2step", "checkpoint.every=2step"});
    const Recipe recipe = tiny_recipe(overrides);
    const auto source = make_source(recipe);
    auto valid = std::make_unique<SignallingSet>(source->open(Split::kValid), 3, signal_at);
    const StopSignals signals;
    RankGrid grid = testing::self_grid();
    const RunData data{
        open_split(source, Split::kTrain), {source, std::move(valid)}, evaluates_first};
    return train_run_on(data, recipe, scratch_.file(folder), grid, signals);
  }
  std::string checkpoint(int64_t step) {
    return scratch_.file("cut") + "/ckpt/" + step_folder(step);
  }
  std::optional<double> score(int64_t step) {
    return CheckpointReader(checkpoint(step)).manifest().score;
  }
  int64_t times_recorded(int64_t step, const std::string& file, const std::string& event) {
    std::istringstream lines(testing::read_file(scratch_.file("cut") + "/" + file));
    int64_t times = 0;
    for (std::string line; std::getline(lines, line);) {
      times += line.starts_with(fmt::format(fmt::runtime(event), step)) ? 1 : 0;
    }
    return times;
  }
  void expect_recorded_once(int64_t step) {
    EXPECT_EQ(times_recorded(step, "metrics.jsonl", "{{\"step\":{},\"event\":\"eval\""), 1);
    EXPECT_EQ(times_recorded(step, "metrics.csv", "{},eval,"), 1);
  }

  ScratchFolder scratch_;
};

TEST_F(OwedEvaluation, IsMadeUpForWhenTheRunResumes) {
  train("whole", 100);
  EXPECT_EQ(train("cut", 2).result.last_step, 4);  // in the second evaluation
  EXPECT_EQ(evaluations(scratch_.file("cut"), "loss").size(), 1u);
  EXPECT_EQ(train("cut", 100).result.code, ExitCode::kOk);
  EXPECT_EQ(evaluations(scratch_.file("cut"), "loss"), evaluations(scratch_.file("whole"), "loss"));
}

TEST_F(OwedEvaluation, GivesTheCheckpointItsScoreBeforeTheRunGoesOn) {
  train("cut", 2);
  EXPECT_EQ(score(4), std::nullopt);
  const std::string digest = content_digest(CheckpointReader(checkpoint(4)));
  EXPECT_EQ(train("cut", 100, {"run.stop_after=1step"}).result.last_step, 5);
  EXPECT_EQ(score(4), evaluations(scratch_.file("cut"), "top1").at(4));
  EXPECT_EQ(content_digest(CheckpointReader(checkpoint(4))), digest);
  expect_recorded_once(4);
  // As after a crash at step 5.
  std::filesystem::remove_all(checkpoint(5));
  EXPECT_EQ(train("cut", 100).result.code, ExitCode::kOk);
  for (const int64_t step : {2, 4, 6}) expect_recorded_once(step);
}

TEST_F(OwedEvaluation, CountsWhenTheBestIsChosen) {
  train("cut", 2);
  // Step 2 is worse than all others, and what follows step 4 is ruined.
  const std::vector<std::string> ruined{"optimizer.lr=1e3", "train.clip_norm=0",
                                        "checkpoint.keep_last=1"};
  PosixFileSystem files;
  write_score(files, scratch_.file("cut") + "/ckpt", 2, -1.0);
  train("cut", 100, ruined);
  const std::map<int64_t, double> scores = evaluations(scratch_.file("cut"), "top1");
  ASSERT_GE(scores.at(4), scores.at(6));
  EXPECT_EQ(find_best(scratch_.file("cut") + "/ckpt"), checkpoint(4));
}

TEST_F(OwedEvaluation, OfTheLastStepReachesCheckpointAndSummary) {
  EXPECT_EQ(train("cut", 3).result.code, ExitCode::kPreempted);
  EXPECT_EQ(score(6), std::nullopt);
  const std::string digest = content_digest(CheckpointReader(checkpoint(6)));
  for (int64_t start = 0; start < 2; ++start) {  // the second as if no summary had been written
    const RunEnd end = train("cut", 100, {}, /*evaluates_first=*/true);
    EXPECT_EQ(end.result.code, ExitCode::kOk);
    ASSERT_TRUE(end.result.evaluation.has_value());
    EXPECT_EQ(score(6), end.result.evaluation->value("top1"));
    EXPECT_EQ(content_digest(CheckpointReader(checkpoint(6))), digest);
    expect_recorded_once(6);
  }
}

TEST(Trainer, ADamagedBestCheckpointStopsNoResumeAndStays) {
  const ScratchFolder scratch;
  const std::string run = scratch.file("run");
  const auto train = [&](const std::string& stop) {
    const Recipe recipe = tiny_recipe({"evaluate.every=2step", "checkpoint.every=2step",
                                       "checkpoint.keep_last=1", "run.stop_after=" + stop});
    const StopSignals signals;
    RankGrid grid = testing::self_grid();
    return train_run(recipe, run, grid, signals).result.code;
  };
  EXPECT_EQ(train("4step"), ExitCode::kPreempted);
  PosixFileSystem files;
  const std::string best = run + "/ckpt/" + step_folder(1);
  std::filesystem::copy(run + "/ckpt/" + step_folder(4), best);
  testing::write_file(best + "/" + kManifestName, "{}");
  EXPECT_EQ(train("never"), ExitCode::kOk);
  EXPECT_THAT(saved_steps(run), Contains(1));
  EXPECT_THAT(testing::read_file(run + "/log-0"),
              AllOf(HasSubstr("cannot be the best one"), HasSubstr(best)));
}

TEST(Trainer, DrawsTheSamePicturesAfterAResumeAndOnAnyRanks) {
  const ScratchFolder scratch;
  const StopSignals signals;
  const auto train = [&](const char* folder, const std::string& stop, RankGrid& grid) {
    const Recipe recipe = tiny_recipe(
        {"model={backbone: vit, patch: 4, width: 8, depth: 1, heads: 2, hidden: 8, pool: mean}",
         "task={name: denoise}", "data.normalise={mean: [0, 0, 0], std: [1, 1, 1]}",
         "evaluate.every=2step", "checkpoint.every=2step", "run.stop_after=" + stop});
    train_run(recipe, scratch.file(folder), grid, signals);
  };
  const auto pictures = [&scratch](const std::string& folder) {
    return testing::read_file(scratch.file(folder + "/pictures.png"));
  };
  RankGrid alone = testing::self_grid();
  train("whole", "never", alone);
  train("cut", "3step", alone);
  EXPECT_EQ(read_sheet(pictures("cut")).value().step, 2);
  train("cut", "never", alone);
  EXPECT_EQ(pictures("cut"), pictures("whole"));
  const SampleSheet sheet = read_sheet(pictures("whole")).value();
  EXPECT_EQ(sheet.step, 6);
  EXPECT_EQ(sheet.samples, 6);
  EXPECT_EQ(sheet.columns.at(2).numbers.size(), 6u);
  testing::run_grid(1, 2, [&](RankGrid& grid) { train("ranks", "never", grid); });
  const SampleSheet parallel = read_sheet(pictures("ranks")).value();
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(parallel.columns.at(2).numbers[i], sheet.columns.at(2).numbers[i], 1e-9);
  }
}

TEST(Trainer, AStopAgreedOnAtAnEvaluationStepIsNotKeptWaiting) {
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe({"evaluate.every=2step", "checkpoint.every=never"});
  const auto source = make_source(recipe);
  // A sample of step 1 brings the signal, which the ranks agree on in step 2.
  auto samples = std::make_unique<SignallingSet>(
      source->open(Split::kTrain), DataOrder(1, 40, /*shuffle=*/true).sample_at(3), 1);
  auto valid = std::make_unique<SignallingSet>(source->open(Split::kValid), -1, 1);
  const SignallingSet& seen = *valid;
  const RunData data{{source, std::move(samples)}, {source, std::move(valid)}};
  const RunEnd end = train_alone(data, recipe, scratch.file("run"));
  EXPECT_EQ(end.result.code, ExitCode::kPreempted);
  EXPECT_EQ(seen.reads, 0);
  EXPECT_EQ(saved_steps(scratch.file("run")), std::vector<int64_t>{2});
}

/// SIGTERM for one of two ranks, as from a scheduler that signals a single process. All threads see
/// a signal, so it comes when only rank 0 has yet to look: rank 0 has just joined the `exchange`-th
/// exchange of flags (1, 2, ...), and rank 1 has read its flags for the next one.
class LateSignal {
 public:
  explicit LateSignal(int64_t exchange) : exchange_(exchange) {}

  /// Rank 1 starts a collective after this many exchanges.
  void note_call(int64_t exchanges) {
    const std::lock_guard lock(mutex_);
    has_read_ = has_read_ || exchanges >= exchange_;
    changed_.notify_all();
  }
  /// Rank 0 has joined this many exchanges.
  void note_exchange(int64_t exchanges) {
    if (exchanges != exchange_) return;
    std::unique_lock lock(mutex_);
    const bool came =
        changed_.wait_for(lock, std::chrono::minutes(2), [this] { return has_read_; });
    TORCH_CHECK(came, "rank 1 starts no collective after exchange ", exchange_);
    std::raise(SIGTERM);
  }

 private:
  int64_t exchange_;
  bool has_read_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// A world that gives rank 0 a LateSignal. Ranks exchange flags by the gathers of groups split off.
class SignallingWorld final : public testing::ForwardingCommunicator {
 public:
  SignallingWorld(std::unique_ptr<Communicator> inner, LateSignal& signal)
      : SignallingWorld(std::move(inner), signal, std::make_shared<int64_t>(0), false) {}

  std::unique_ptr<Communicator> split(int64_t color, int64_t key, Traffic traffic) override {
    return std::unique_ptr<Communicator>(
        new SignallingWorld(inner_.split(color, key, traffic), signal_, exchanges_, true));
  }
  Pending start_all_reduce(torch::Tensor buffer, ReduceOp op) override {
    note_call();
    return inner_.start_all_reduce(buffer, op);
  }
  Pending start_all_gather(torch::Tensor in, torch::Tensor out, const RowCounts& rows) override {
    note_call();
    Pending pending = inner_.start_all_gather(in, out, rows);
    if (is_split_) {
      ++*exchanges_;
      if (rank() == 0) signal_.note_exchange(*exchanges_);
    }
    return pending;
  }

 private:
  SignallingWorld(std::unique_ptr<Communicator> inner, LateSignal& signal,
                  std::shared_ptr<int64_t> exchanges, bool is_split)
      : ForwardingCommunicator(std::move(inner)),
        signal_(signal),
        exchanges_(std::move(exchanges)),
        is_split_(is_split) {}
  void note_call() {
    if (rank() == 1) signal_.note_call(*exchanges_);
  }

  LateSignal& signal_;
  std::shared_ptr<int64_t> exchanges_;  ///< that this rank has joined
  bool is_split_;
};

struct TwoRanks {
  std::array<RunEnd, 2> ends;
  std::array<int64_t, 2> evaluated = {};  ///< validation samples that a rank has read, of 40
};

/// Evaluates after step 2, in ten batches, each of which follows an exchange; so does each step.
TwoRanks train_until_late_signal(int64_t exchange, const std::string& folder) {
  const Recipe recipe =
      tiny_recipe({"evaluate.every=2step", "checkpoint.every=never", "data.valid.samples=80"});
  const StopSignals signals;
  LateSignal late(exchange);
  TwoRanks ranks;
  testing::run_grid(1, 2, [&](RankGrid& grid) {
    const auto rank = static_cast<size_t>(grid.world->rank());
    grid.world = std::make_unique<SignallingWorld>(std::move(grid.world), late);
    const auto source = make_source(recipe);
    auto valid = std::make_unique<SignallingSet>(source->open(Split::kValid), -1, 1);
    const SignallingSet& seen = *valid;
    const RunData data{open_split(source, Split::kTrain), {source, std::move(valid)}};
    ranks.ends[rank] = train_run_on(data, recipe, folder, grid, signals);
    ranks.evaluated[rank] = seen.reads;
  });
  return ranks;
}

void expect_saved_without_evaluation(const TwoRanks& ranks, const std::string& folder) {
  EXPECT_TRUE(evaluations(folder, "top1").empty());
  ASSERT_EQ(saved_steps(folder), std::vector<int64_t>{2});
  const std::string saved = content_digest(CheckpointReader(folder + "/ckpt/" + step_folder(2)));
  for (const RunEnd& end : ranks.ends) {
    EXPECT_EQ(end.result.code, ExitCode::kPreempted);
    EXPECT_EQ(end.result.last_step, 2);
    EXPECT_EQ(end.result.failed_saves, 0);
    EXPECT_FALSE(end.result.evaluation.has_value());
    EXPECT_EQ(end.digest, saved);
  }
}

TEST(TrainerRanks, AStopOfOneRankDuringAnEvaluationEndsItOnAllAndSaves) {
  const ScratchFolder scratch;
  const TwoRanks ranks = train_until_late_signal(4, scratch.file("run"));  // agreed before batch 3
  expect_saved_without_evaluation(ranks, scratch.file("run"));
  for (const int64_t samples : ranks.evaluated) {
    EXPECT_GT(samples, 0);
    EXPECT_LE(samples, 12);  // of three batches
  }
}

TEST(TrainerRanks, AStopOfOneRankAtAnEvaluationStepIsKeptWaitingOnNone) {
  const ScratchFolder scratch;
  const TwoRanks ranks = train_until_late_signal(1, scratch.file("run"));  // agreed in step 2
  expect_saved_without_evaluation(ranks, scratch.file("run"));
  for (const int64_t samples : ranks.evaluated) EXPECT_EQ(samples, 0);
}

/// A world that has failed once a save has begun in a folder.
struct WorldThatFailsInSaves final : testing::ForwardingCommunicator {
  WorldThatFailsInSaves(std::unique_ptr<Communicator> inner, std::string checkpoints)
      : ForwardingCommunicator(std::move(inner)), folder(std::move(checkpoints)) {}
  void throw_if_failed() const override {
    if (!std::filesystem::is_empty(folder)) throw CommError("the peer is gone");
  }
  std::string folder;
};

TEST(Trainer, MakesNoLastCheckpointOfACommunicatorThatFailsInTheSave) {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("run");
  RankGrid grid = testing::self_grid();
  grid.world = std::make_unique<WorldThatFailsInSaves>(std::move(grid.world), folder + "/ckpt");
  const StopSignals signals;
  EXPECT_THROW(train_run(tiny_recipe({"checkpoint.every=never"}), folder, grid, signals),
               CommError);
  EXPECT_TRUE(saved_steps(folder).empty());
}

TEST(Trainer, ALossThatIsNotFiniteSkipsTheStepThoughItsGradientIs) {
  const Recipe recipe = tiny_recipe({"task={name: infinite}"});
  testing::run_grid(1, 2, [&](RankGrid& grid) {
    const OpenSplit data = open_split(make_source(recipe), Split::kTrain);
    Session session(recipe, testing::model_on(recipe, data, grid), data, grid);
    const StepOutcome outcome = session.step({});
    EXPECT_FALSE(outcome.applied);
    EXPECT_EQ(outcome.not_finite, "the loss");
    EXPECT_TRUE(session.parameters()[0].tensor.equal(torch::ones({2}, torch::kFloat64)));
  });
}

TEST(Trainer, SavesAfterAnEvaluationThatIsTheBestSoFar) {
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe({"evaluate.every=2step", "checkpoint.every=5step",
                                     "checkpoint.keep_last=1", "train.duration=11step"});
  const StopSignals signals;
  RankGrid grid = testing::self_grid();
  train_run(recipe, scratch.file("run"), grid, signals);
  const auto scores = evaluations(scratch.file("run"), "top1");
  ASSERT_EQ(scores.size(), 6u);  // 2, 4, .. 10, and the last step
  int64_t best = 2;
  for (const auto& [step, top1] : scores) {
    if (top1 > scores.at(best)) best = step;
  }
  const std::string expected = scratch.file("run") + "/ckpt/" + step_folder(best);
  EXPECT_EQ(find_best(scratch.file("run") + "/ckpt"), expected);
  EXPECT_EQ(CheckpointReader(expected).manifest().score, scores.at(best));
}

std::vector<std::string> notes(const std::vector<std::string>& overrides) {
  const ScratchFolder scratch;
  testing::write_file(scratch.file("r.yaml"), testing::kEqualityRecipe);
  return recipe_notes(check_recipe({scratch.file("r.yaml"), overrides, {}},
                                   config::UnsetVariable::kRefuse, std::nullopt));
}

TEST(Trainer, NotesWhatDependsOnMicroSteps) {
  const auto depends = Contains(HasSubstr("depends on train.accumulate"));
  const auto of_gates = [](const std::string& gate, const std::string& accumulate) {
    std::vector<std::string> overrides = testing::with_hspmn(testing::answers(), gate);
    overrides.insert(overrides.end(), {"train.batch=16", "train.accumulate=" + accumulate});
    return notes(overrides);
  };
  EXPECT_THAT(of_gates("rate: 0.4", "2"), depends);
  EXPECT_THAT(of_gates("rate: 0.4", "1"), ::testing::Not(depends));
  EXPECT_THAT(of_gates("rate: 0.4, select: random", "2"), ::testing::Not(depends));
}

TEST(Trainer, NotesThatEvaluationsAndSavesMissEachOther) {
  const auto misses = Contains(HasSubstr("evaluations and saves may fall on different steps"));
  EXPECT_THAT(notes({"evaluate.every=2step", "checkpoint.every=5step"}), misses);
  EXPECT_THAT(notes({"evaluate.every=1ep", "checkpoint.every=100step"}), misses);
  EXPECT_THAT(notes({"evaluate.every=1ep", "checkpoint.every=2ep"}), misses);
  EXPECT_THAT(notes({"evaluate.every=4step", "checkpoint.every=2step"}), ::testing::Not(misses));
  EXPECT_THAT(notes({"evaluate.every=1ep", "checkpoint.every=0.5ep"}), ::testing::Not(misses));
  EXPECT_THAT(notes({"evaluate.every=2step", "checkpoint.every=5step", "checkpoint.keep_best=0"}),
              ::testing::Not(misses));
}

TEST(Trainer, EvaluationsThatAreNotFiniteAreNotedAndEndWithThirty) {
  const ScratchFolder scratch;
  // Steps with an infinite loss are skipped; the evaluation at the end is no number.
  const Recipe recipe = tiny_recipe({"task={name: infinite}", "train.max_nonfinite_steps=100"});
  const StopSignals signals;
  RankGrid grid = testing::self_grid();
  const RunEnd end = train_run(recipe, scratch.file("run"), grid, signals);
  EXPECT_EQ(end.result.code, ExitCode::kNumeric);
  EXPECT_THAT(end.result.notes, Contains("step 6: validation score is not finite"));
  EXPECT_THAT(end.result.notes, Contains("step 6: loss is not finite"));
}

}  // namespace
}  // namespace shoal
