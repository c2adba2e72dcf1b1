#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "launch/check/check_recipe.h"
#include "launch/check/memory_estimate.h"
#include "launch/data/recipe_source.h"
#include "moe/moe_layer.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "runtime/module/linear.h"
#include "runtime/options/config_reader.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/train_run.h"

/// Numbers in, numbers out: a source, a backbone with experts, a task and a recipe that the program
/// has never heard of. They train, evaluate, keep the best by a score that falls, resume, and move
/// to other numbers of ranks, without a line of the program that knows of them.
// b samples on this rank  N numbers in  M numbers out  D features
namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ScratchFolder;

/// Target m is a wave of the sum of the numbers.
class WaveSet final : public SampleSet {
 public:
  WaveSet(int64_t size, double phase) : size_(size), phase_(phase) {}
  int64_t size() const override { return size_; }
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    Sample sample;
    double sum = 0.0;
    for (int64_t n = 0; n < 3; ++n) {
      sample.value_N.push_back(std::sin(0.7 * static_cast<double>(index * 3 + n) + phase_));
      sum += sample.value_N.back();
    }
    for (int64_t m = 0; m < 2; ++m)
      sample.target_M.push_back(std::sin(sum + static_cast<double>(m)));
    return sample;
  }

 private:
  int64_t size_;
  double phase_;
};

class WaveSource final : public DataSource {
 public:
  struct Options {
    int64_t samples = 48;
    static constexpr auto fields() {
      return std::tuple{field("samples", &Options::samples, "of each split", at_least(1))};
    }
  };
  explicit WaveSource(const Options& options) : options_(options) {}
  DataShape shape() const override { return {.source = "waves", .values = 3, .targets = 2}; }
  std::unique_ptr<SampleSet> open(Split split) const override {
    return std::make_unique<WaveSet>(options_.samples, split == Split::kTrain ? 0.0 : 0.3);
  }

 private:
  Options options_;
};

/// How many backbones have been built so far.
std::atomic<int> num_backbones = 0;

/// Two linear layers around experts.
class WaveBackbone final : public Backbone {
 public:
  struct Options {
    MoeOptions moe;
    bool causal = false;
    static constexpr auto fields() {
      return std::tuple{
          field("moe", &Options::moe, "between the layers"),
          field("causal", &Options::causal, "whether a token may not see later ones")};
    }
  };
  WaveBackbone(const Options& options, const Context& context) {
    ModelContext build = context.build;
    build.is_causal = options.causal;
    ++num_backbones;
    in_ = register_module("in", Linear(context.data.values, 8, build.tensor_options));
    moe_ = register_module("moe",
                           std::make_shared<MoeLayer>(options.moe, 8, build.prefix + "moe", build));
  }
  ModelOutput forward(const ModelInput& input, const StepContext& step) override {
    const torch::Tensor h_bD = in_->forward(input.value_bN).tanh();
    const MoeOutput experts = moe_->forward(h_bD.unsqueeze(1), step);
    return {.pooled_bD = h_bD + experts.y_BRD.squeeze(1),
            .auxiliary_loss = experts.auxiliary_loss,
            .moe = {experts.stats}};
  }
  int64_t feature_width() const override { return 8; }

 private:
  Linear in_{nullptr};
  std::shared_ptr<MoeLayer> moe_;
};

/// Regression by the squared error; reports its root.
class WaveTask final : public Task {
 public:
  struct Options {
    static constexpr auto fields() { return std::tuple{}; }
  };
  WaveTask(const Options&, const Context& context) {
    if (context.data.targets == 0) throw ConfigError("task.name: toy_regress needs targets");
    backbone_ = register_module("backbone", context.make_backbone("backbone", Features::kPooled));
    head_ = register_module("head", Linear(backbone_->feature_width(), context.data.targets,
                                           context.build.tensor_options));
  }
  TrainOutput train(const Batch& batch) override {
    ModelOutput output = backbone_->forward(input_of(batch), batch.context);
    const torch::Tensor error_bM = head_->forward(output.pooled_bD) - batch.target_bM;
    return {error_bM.square().sum() / static_cast<double>(batch.context.samples_in_step),
            std::move(output.moe)};
  }
  torch::Tensor outputs(const Batch& batch) override {
    return head_->forward(backbone_->forward(input_of(batch), batch.context).pooled_bD);
  }
  EvalOutput evaluate(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    const torch::Tensor square_bM = (outputs(batch) - batch.target_bM).square();
    return {{{"square", square_bM.sum().item<double>(), static_cast<double>(square_bM.numel())}}};
  }
  std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const override {
    return {{"rmse", std::sqrt(mean_of(totals, "square"))}};
  }
  ScoreRule score() const override { return {"rmse", /*higher_is_better=*/false}; }
  RateUnit unit() const override { return {"wave"}; }

 private:
  std::shared_ptr<Backbone> backbone_;
  Linear head_{nullptr};
};

const Registration<DataSource, WaveSource> registered_waves{"waves", "for this test"};
const Registration<Backbone, WaveBackbone> registered_wave_mlp{"toy_mlp", "for this test"};
const Registration<Task, WaveTask> registered_regress{"toy_regress", "for this test"};

constexpr const char* kToyRecipe = R"(
data: {source: waves}
model: {backbone: toy_mlp, moe: {router: {k: 1}, experts: {count: 4, hidden: 6}}}
task: {name: toy_regress}
optimizer: {name: adamw, lr: 0.05}
schedule: {name: constant}
train: {duration: 12step, batch: 16, group: 2, precision: float64, log_every: 1step}
evaluate: {every: 2step}
checkpoint: {every: 4step, keep_last: 10, keep_best: 1}
)";

struct ToyRun {
  ScratchFolder scratch;
  std::string folder = scratch.file("run");

  /// Trains on thread ranks, from the newest checkpoint if there is one; how rank 0 ended.
  testing::RunEnd train(int64_t expert_ranks, int64_t replicas,
                        const std::vector<std::string>& overrides = {}) const {
    std::vector<std::string> keys{"parallel.expert_ranks=" + std::to_string(expert_ranks)};
    keys.insert(keys.end(), overrides.begin(), overrides.end());
    const Recipe recipe =
        config::load_options_text<Recipe>(kToyRecipe, "toy", {"", keys, nullptr}).options;
    testing::RunEnd of_rank_0;
    const StopSignals signals;
    testing::run_grid(expert_ranks, replicas, [&](RankGrid& grid) {
      const testing::RunEnd end = testing::train_run(recipe, folder, grid, signals);
      if (grid.world->rank() == 0) of_rank_0 = end;
    });
    return of_rank_0;
  }
  /// rmse of each evaluation by step.
  std::map<int64_t, double> scores() const { return testing::evaluations(folder, "rmse"); }
};

TEST(ToyModality, KeepsItsBestByAScoreThatFalls) {
  const ToyRun run;
  run.train(1, 1);
  const std::map<int64_t, double> scores = run.scores();
  ASSERT_EQ(scores.size(), 6u);
  int64_t best = 2;
  for (const auto& [step, rmse] : scores) {
    if (rmse < scores.at(best)) best = step;
  }
  EXPECT_LT(scores.at(best), scores.at(2));
  EXPECT_EQ(find_best(run.folder + "/ckpt").value(), run.folder + "/ckpt/" + step_folder(best));
  std::ifstream table(run.folder + "/metrics.csv");
  std::string columns;
  std::getline(table, columns);
  EXPECT_THAT(columns, HasSubstr(",rmse"));
}

void expect_steps(const TrainingResult& result, int64_t first, int64_t last, ExitCode code) {
  EXPECT_EQ(result.first_step, first);
  EXPECT_EQ(result.last_step, last);
  EXPECT_EQ(result.code, code);
}

TEST(ToyModalityRanks, ResumesToTheBit) {
  const ToyRun whole, resumed;
  const testing::RunEnd expected = whole.train(2, 1);
  expect_steps(expected.result, 0, 12, ExitCode::kOk);
  expect_steps(resumed.train(2, 1, {"run.stop_after=5step"}).result, 0, 5, ExitCode::kPreempted);
  const testing::RunEnd end = resumed.train(2, 1);
  expect_steps(end.result, 5, 12, ExitCode::kOk);
  EXPECT_EQ(end.digest, expected.digest);
}

TEST(ToyModalityRanks, TrainsTheSameModelOnOtherRanks) {
  const ToyRun serial;
  serial.train(1, 1);
  const std::map<int64_t, double> expected = serial.scores();
  ASSERT_EQ(expected.size(), 6u);
  for (const auto& [expert_ranks, replicas] :
       {std::pair<int64_t, int64_t>{2, 1}, {1, 3}, {4, 1}, {2, 2}}) {
    const ToyRun run;
    const auto stopped = run.train(expert_ranks, replicas, {"run.stop_after=6step"});
    expect_steps(stopped.result, 0, 6, ExitCode::kPreempted);
    expect_steps(run.train(1, 2).result, 6, 12, ExitCode::kOk);  // on another grid
    for (const auto& [step, rmse] : expected) {
      EXPECT_NEAR(run.scores().at(step), rmse, 1e-12 * rmse) << step;
    }
  }
}

TEST(ToyModality, IsBuiltOnceForAllThatAStartAsksOfItsShapes) {
  const int before = num_backbones;
  const CheckedRecipe checked =
      check_recipe({"toy", {}, {}, kToyRecipe}, config::UnsetVariable::kKeep, 1);
  estimate_memory(checked, 1);
  EXPECT_EQ(num_backbones - before, 1);
  EXPECT_EQ(memory_refusal(checked, 1, {}, int64_t{1} << 40, [](const auto&) {}), "");
  EXPECT_EQ(num_backbones - before, 3) << "two trials, which train a model each";
}

TEST(ToyModality, IsRefusedByATaskForOtherData) {
  for (const auto& [key, what] : std::map<std::string, std::string>{
           {"task={name: classify}",
            "task.name: classify needs labels, data.source waves gives "
            "3 numbers and 2 targets"},
           {"model={backbone: vit}",
            "model.backbone: vit needs images, data.source waves gives "
            "3 numbers"}}) {
    const Recipe recipe =
        config::load_options_text<Recipe>(kToyRecipe, "toy", {"", {key}, nullptr}).options;
    try {
      build_model(recipe, make_source(recipe)->shape());
      ADD_FAILURE() << key;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
  }
}

TEST(ToyModality, HasNoKeysOfImages) {
  try {
    config::load_options_text<Recipe>(kToyRecipe, "toy", {"", {"data.augment={flip: true}"}, {}});
    ADD_FAILURE() << "numbers were augmented";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.augment={flip: true}: unknown key"));
  }
}

TEST(ToyModality, IsCheckedForCausality) {
  const auto check = [](const std::string& router) {
    const std::vector<std::string> keys{"model.causal=true", "model.moe.router=" + router};
    check_recipe({"toy", keys, {}, kToyRecipe}, config::UnsetVariable::kKeep, std::nullopt);
  };
  EXPECT_NO_THROW(check("{name: top_k, k: 1}"));
  for (const std::string name : {"expert_choice", "sinkhorn"}) {
    try {
      check("{name: " + name + "}");
      ADD_FAILURE() << name;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(name), HasSubstr("causal")));
    }
  }
}

}  // namespace
}  // namespace shoal
