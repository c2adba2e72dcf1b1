#include "launch/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "launch/train/check_recipe.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "runtime/recipe/config_reader.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/train_run.h"

namespace shoal {
namespace {

using ::testing::Contains;
using testing::evaluations;
using ::testing::HasSubstr;
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
  return config::load_options_text<Recipe>(testing::kEqualityRecipe, "test",
                                           {"", overrides, nullptr})
      .options;
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
  const RunEnd end = train_run_on(open_split(source, Split::kTrain), {source, std::move(samples)},
                                  recipe, scratch.file("run"));
  EXPECT_EQ(end.result.code, ExitCode::kPreempted);
  EXPECT_EQ(end.result.last_step, 2);
  EXPECT_FALSE(end.result.evaluation.has_value());
  EXPECT_LE(seen.reads, 32);  // the batch of the signal and the one after it at most
  EXPECT_TRUE(evaluations(scratch.file("run"), "top1").empty());
  EXPECT_EQ(saved_steps(scratch.file("run")), std::vector<int64_t>{2});
}

TEST(Trainer, AnEvaluationThatAStopLeftOutIsMadeUpForWhenTheRunResumes) {
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe({"evaluate.every=2step", "checkpoint.every=never"});
  const auto source = make_source(recipe);
  const auto train = [&](const std::string& folder, int64_t signals) {
    return train_run_on(
        open_split(source, Split::kTrain),
        {source, std::make_unique<SignallingSet>(source->open(Split::kValid), 3, signals)}, recipe,
        scratch.file(folder));
  };
  train("whole", 100);
  EXPECT_EQ(train("cut", 2).result.last_step, 4);  // in the second evaluation
  EXPECT_EQ(evaluations(scratch.file("cut"), "loss").size(), 1u);
  EXPECT_EQ(train("cut", 100).result.code, ExitCode::kOk);
  EXPECT_EQ(evaluations(scratch.file("cut"), "loss"), evaluations(scratch.file("whole"), "loss"));
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
  const RunEnd end = train_run_on({source, std::move(samples)}, {source, std::move(valid)}, recipe,
                                  scratch.file("run"));
  EXPECT_EQ(end.result.code, ExitCode::kPreempted);
  EXPECT_EQ(seen.reads, 0);
  EXPECT_EQ(saved_steps(scratch.file("run")), std::vector<int64_t>{2});
}

TEST(Trainer, ALossThatIsNotFiniteSkipsTheStepThoughItsGradientIs) {
  const Recipe recipe = tiny_recipe({"task={name: infinite}"});
  testing::run_grid(1, 2, [&](RankGrid& grid) {
    const OpenSplit data = open_split(make_source(recipe), Split::kTrain);
    Session session(recipe, data, grid);
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

TEST(Trainer, NotesThatEvaluationsAndSavesMissEachOther) {
  const auto notes = [](const std::vector<std::string>& overrides) {
    const ScratchFolder scratch;
    testing::write_file(scratch.file("r.yaml"), testing::kEqualityRecipe);
    return recipe_notes(check_recipe({scratch.file("r.yaml"), overrides, {}},
                                     config::UnsetVariable::kRefuse, std::nullopt));
  };
  const auto misses = Contains(HasSubstr("evaluations and saves need not fall on one step"));
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
