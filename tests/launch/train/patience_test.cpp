#include "launch/data/recipe_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "parallel/checkpoint/checkpoint_files.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/train_run.h"

namespace shoal {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::RunEnd;
using testing::ScratchFolder;
using testing::train_run;
using testing::train_run_on;

/// Evaluations score best where they are made after `peak` steps.
class PeakTask final : public Task {
 public:
  struct Options {
    int64_t peak = 4;
    static constexpr auto fields() {
      return std::tuple{field("peak", &Options::peak, "the best step; 0: scores are not numbers")};
    }
  };
  PeakTask(const Options& options, const Context& context)
      : peak_(options.peak),
        weight_(add_parameter("weight", {2}, context.build.tensor_options, Init::ones())) {}
  TrainOutput train(const Batch& batch) override {
    const auto share = static_cast<double>(batch.label_b.size(0)) /
                       static_cast<double>(batch.context.samples_in_step);
    return {weight_.square().sum() * share, {}};
  }
  torch::Tensor outputs(const Batch&) override { return weight_; }
  EvalOutput evaluate(const Batch& batch) override {
    const auto count = static_cast<double>(batch.label_b.size(0));
    const auto distance = static_cast<double>(std::abs(batch.context.step - peak_));
    return {{{"distance", peak_ == 0 ? std::nan("") : distance * count, count}}};
  }
  std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const override {
    return {{"distance", mean_of(totals, "distance"), Metric::Kind::kLoss}};
  }
  ScoreRule score() const override { return {"distance", /*higher_is_better=*/false}; }
  RateUnit unit() const override { return {"img"}; }

 private:
  int64_t peak_;
  torch::Tensor weight_;
};
const Registration<Task, PeakTask> registered_peak{"peak", "for this test"};

/// A run of at most 20 steps that is evaluated after every second one, best after step 4.
class Patience : public ::testing::Test {
 protected:
  RunEnd train(const std::string& folder, std::vector<std::string> overrides,
               bool evaluates_first = false) {
    const Recipe recipe = recipe_of(std::move(overrides));
    const auto source = make_source(recipe);
    const StopSignals signals;
    RankGrid grid = testing::self_grid();
    return train_run_on(
        {open_split(source, Split::kTrain), open_split(source, Split::kValid), evaluates_first},
        recipe, scratch_.file(folder), grid, signals);
  }
  static Recipe recipe_of(std::vector<std::string> overrides) {
    overrides.insert(
        overrides.begin(),
        {"data.prefetch=0", "task={name: peak}", "train.duration=20step", "train.log_every=7step",
         "evaluate.every=2step", "checkpoint.every=3step", "checkpoint.keep_last=99"});
    return testing::equality_recipe(overrides);
  }
  std::vector<ManifestValue> values(const std::string& folder, int64_t step) {
    return CheckpointReader(scratch_.file(folder) + "/ckpt/" + step_folder(step)).manifest().values;
  }
  ScratchFolder scratch_;
};

TEST_F(Patience, EndsInOrderAfterSoManyEvaluationsWithoutABetterScore) {
  const RunEnd end = train("run", {"train.patience=2"});
  EXPECT_EQ(end.result.code, ExitCode::kOk);
  EXPECT_EQ(end.result.last_step, 8);
  EXPECT_EQ(end.result.evaluation.value().value("distance"), 4);
  EXPECT_THAT(end.result.notes,
              ::testing::ElementsAre("train.patience ended the training at step 8 of 20: 2 "
                                     "evaluations without a better distance than 0.0000 of step "
                                     "4"));
  EXPECT_THAT(list_checkpoints(scratch_.file("run/ckpt")), Contains(8));
  // The summary's loss is that of the last step, though that is no step of train.log_every.
  const RunEnd dense = train("dense", {"train.log_every=1step", "run.stop_after=8step"});
  EXPECT_EQ(end.result.report.value().loss, dense.result.report.value().loss);
  EXPECT_THAT(testing::read_file(scratch_.file("run/metrics.jsonl")),
              HasSubstr("{\"step\":8,\"samples\""));
}

TEST_F(Patience, CountsAcrossStopsAsWithoutThem) {
  const RunEnd whole = train("whole", {"train.patience=2"});
  for (int64_t stop = 1; stop < 8; ++stop) {
    const std::string folder = fmt::format("cut{}", stop);
    const RunEnd cut =
        train(folder, {"train.patience=2", fmt::format("run.stop_after={}step", stop)});
    EXPECT_EQ(cut.result.code, ExitCode::kPreempted);
    const RunEnd end = train(folder, {"train.patience=2"});
    EXPECT_EQ(end.result.code, ExitCode::kOk);
    EXPECT_EQ(end.result.last_step, 8) << stop;
    EXPECT_EQ(end.digest, whole.digest) << stop;
    EXPECT_EQ(values(folder, 8).size(), values("whole", 8).size());
    for (size_t i = 0; i < values("whole", 8).size(); ++i) {
      EXPECT_EQ(values(folder, 8)[i].value, values("whole", 8)[i].value) << stop;
    }
  }
}

TEST_F(Patience, TrainsNoMoreUntilItIsRaisedOrRemoved) {
  train("run", {"train.patience=2"});
  for (const bool lacks_summary : {false, true}) {
    const RunEnd again = train("run", {"train.patience=2"}, lacks_summary);
    EXPECT_EQ(again.result.code, ExitCode::kOk);
    EXPECT_EQ(again.result.first_step, 8);
    EXPECT_EQ(again.result.last_step, 8);
    EXPECT_EQ(again.result.evaluation.has_value(), lacks_summary);
  }
  EXPECT_EQ(train("run", {"train.patience=3"}).result.last_step, 10);
  const RunEnd without = train("run", {});
  EXPECT_EQ(without.result.last_step, 20);
  EXPECT_THAT(without.result.notes, ::testing::IsEmpty());
}

TEST_F(Patience, BeginsWithTheCheckpointsScoreWhereItIsAddedLater) {
  train("run", {"run.stop_after=6step"});
  EXPECT_EQ(train("run", {"train.patience=2"}).result.last_step, 10);  // step 6 is the best known
}

TEST_F(Patience, CountsAnewUnderAnotherScore) {
  train("run", {"train.patience=2", "run.stop_after=6step"});  // the best is that of step 4
  EXPECT_EQ(train("run", {"train.patience=2", "evaluate.score=distance"}).result.last_step, 12);
  train("same", {"train.patience=2", "run.stop_after=6step"});
  EXPECT_EQ(train("same", {"train.patience=2", "train.log_every=1step"}).result.last_step, 8);
}

TEST_F(Patience, TakesNoScoreThatIsNotANumber) {
  EXPECT_EQ(train("run", {"train.patience=3", "task.peak=0"}).result.last_step, 6);
}

TEST_F(Patience, EndsAllRanksAtOneStep) {
  const StopSignals signals;
  testing::run_grid(1, 3, [&](RankGrid& grid) {
    const RunEnd end =
        train_run(recipe_of({"train.patience=2"}), scratch_.file("ranks"), grid, signals);
    EXPECT_EQ(end.result.last_step, 8);
    EXPECT_EQ(end.result.code, ExitCode::kOk);
  });
}

}  // namespace
}  // namespace shoal
