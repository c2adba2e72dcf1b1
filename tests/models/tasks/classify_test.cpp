#include <gtest/gtest.h>

#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>

#include <cmath>
#include <limits>
#include <memory>

#include "models/task.h"
#include "models/tasks/classify.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/registry.h"
#include "tests/support/build_model.h"
#include "tests/support/config_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"
#include "tests/support/ranks.h"
#include "tests/support/some_batch.h"

// b images  D features  N classes
namespace shoal {
namespace {

using testing::gradient_error;
using testing::image_batch;
using testing::in_step;
using testing::some_numbers;
using testing::sum_of;

/// Features are the pixels.
class FlatBackbone : public Backbone {
 public:
  ModelOutput forward(const ModelInput& input, const StepContext& step) override {
    ModelOutput output{.pooled_bD = input.image_bCHW.flatten(1)};
    if (step.training) output.auxiliary_loss = auxiliary_loss;
    return output;
  }
  int64_t feature_width() const override { return 6; }

  torch::Tensor auxiliary_loss;
};

class ClassifyTest : public ::testing::Test {
 protected:
  std::shared_ptr<Task> make(int64_t num_classes, ClassLoss loss = ClassLoss::kCrossEntropy) {
    ModelContext build;
    build.tensor_options = build.tensor_options.dtype(torch::kFloat64);
    const DataShape data{.source = "test", .image = ImageShape{1, 2, 3}, .classes = num_classes};
    const auto make_backbone = [this](const std::string&, Features) { return backbone_; };
    Classify::Options options;
    options.loss = loss;
    auto task =
        Registry<Task>::create(Choice<Task>("classify", options), {build, data, make_backbone});
    testing::fill_parameters(*task);
    return task;
  }
  /// Six features an image are read as six logits.
  std::shared_ptr<Task> make_identity(ClassLoss loss = ClassLoss::kCrossEntropy) {
    auto task = make(6, loss);
    const torch::NoGradGuard no_grad;
    parameter(*task, "head.weight").copy_(torch::eye(6));
    parameter(*task, "head.bias").zero_();
    return task;
  }
  static torch::Tensor parameter(const Task& task, const std::string& name) {
    for (const Parameter& found : parameters_of(task)) {
      if (found.name == name) return found.tensor;
    }
    TORCH_CHECK(false, "no parameter ", name);
  }
  static Batch batch_of(const torch::Tensor& feature_bD, std::vector<int64_t> label) {
    return image_batch(feature_bD.reshape({-1, 1, 2, 3}), torch::tensor(label, torch::kInt64));
  }

  std::shared_ptr<FlatBackbone> backbone_ = std::make_shared<FlatBackbone>();
};

StepContext classify_step(int64_t samples_in_step, bool training) {
  StepContext step;
  step.training = training;
  step.samples_in_step = samples_in_step;
  return step;
}

TEST_F(ClassifyTest, LossIsTheLocalSumOverTheSamplesOfTheStep) {
  const auto task = make(4);
  const Batch batch = batch_of(some_numbers({3, 6}, 1), {2, 0, 3});
  const torch::Tensor logits =
      at::linear(batch.image_bCHW().flatten(1), parameter(*task, "head.weight"),
                 parameter(*task, "head.bias"));
  const torch::Tensor log_prob = at::log_softmax(logits, 1);
  double sum = 0;
  for (int64_t i = 0; i < 3; ++i) {
    sum -= log_prob[i][batch.label_b[i].item<int64_t>()].item<double>();
  }
  EXPECT_NEAR(task->train(in_step(batch, classify_step(10, true))).loss.item<double>(), sum / 10,
              1e-14);
}

TEST_F(ClassifyTest, SmoothingSpreadsAShareOfTheTargetOverAllClasses) {
  ModelContext build;
  build.tensor_options = build.tensor_options.dtype(torch::kFloat64);
  const auto task = testing::build_model(
      "model: {backbone: mixer, patch: 1, width: 2, depth: 0}\n"
      "task: {name: classify, label_smoothing: 0.2}",
      {1, 1, 1}, 4, build);
  testing::fill_parameters(*task);
  // The norm of one token and the head's weight decide the logits; here the bias alone.
  const torch::NoGradGuard no_grad;
  parameter(*task, "head.weight").zero_();
  const torch::Tensor log_prob = at::log_softmax(parameter(*task, "head.bias"), 0);
  const torch::Tensor target = torch::tensor({0.05, 0.05, 0.85, 0.05}, torch::kFloat64);
  const Batch batch =
      image_batch(torch::zeros({1, 1, 1, 1}, torch::kFloat64), torch::tensor({2}, torch::kInt64));
  EXPECT_NEAR(task->train(in_step(batch, classify_step(1, true))).loss.item<double>(),
              -(log_prob * target).sum().item<double>(), 1e-14);
  EXPECT_NEAR(sum_of(task->evaluate(in_step(batch, classify_step(1, false))), "loss"),
              -log_prob[2].item<double>(), 1e-14);
}

TEST_F(ClassifyTest, SumsOverSharesAndMicroStepsAreTheStep) {
  const auto task = make(4);
  const torch::Tensor feature = some_numbers({5, 6}, 1);
  const double whole =
      task->train(in_step(batch_of(feature, {2, 0, 3, 1, 1}), classify_step(5, true)))
          .loss.item<double>();
  const double first =
      task->train(in_step(batch_of(feature.narrow(0, 0, 2), {2, 0}), classify_step(5, true)))
          .loss.item<double>();
  const double rest =
      task->train(in_step(batch_of(feature.narrow(0, 2, 3), {3, 1, 1}), classify_step(5, true)))
          .loss.item<double>();
  EXPECT_NEAR(first + rest, whole, 1e-14);
}

TEST_F(ClassifyTest, GradientsAreThoseOfFiniteDifferences) {
  const auto task = make(4);
  const Batch batch = batch_of(some_numbers({3, 6}, 1), {2, 0, 3});
  EXPECT_LT(gradient_error([&] { return task->train(in_step(batch, classify_step(3, true))).loss; },
                           {parameter(*task, "head.weight"), parameter(*task, "head.bias")}),
            1e-6);
}

TEST_F(ClassifyTest, AddsTheBackbonesAuxiliaryLossUnscaled) {
  const auto task = make(4);
  const Batch batch = batch_of(some_numbers({3, 6}, 1), {2, 0, 3});
  const double without = task->train(in_step(batch, classify_step(7, true))).loss.item<double>();
  backbone_->auxiliary_loss = torch::tensor(0.25, torch::kFloat64);
  EXPECT_NEAR(task->train(in_step(batch, classify_step(7, true))).loss.item<double>(),
              without + 0.25, 1e-14);
}

TEST_F(ClassifyTest, ABatchWithoutSamplesStillHasAGradient) {
  const auto task = make(4);
  const Batch batch = batch_of(some_numbers({0, 6}, 1), {});
  const torch::Tensor loss = task->train(in_step(batch, classify_step(8, true))).loss;
  EXPECT_EQ(loss.item<double>(), 0.0);
  loss.backward();
  EXPECT_EQ(parameter(*task, "head.weight").grad().abs().max().item<double>(), 0.0);
  const EvalOutput sums = task->evaluate(in_step(batch, classify_step(8, false)));
  EXPECT_EQ(sums.sums[0].weight + sum_of(sums, "top1") + sum_of(sums, "top5"), 0.0);
  EXPECT_EQ(sum_of(sums, "loss"), 0.0);
}

TEST_F(ClassifyTest, CountsTopOneAndTopFive) {
  const auto task = make_identity();
  const torch::Tensor logits = torch::tensor({{6., 5., 4., 3., 2., 1.},    // label 0: first
                                              {6., 5., 4., 3., 2., 1.},    // label 4: fifth
                                              {6., 5., 4., 3., 2., 1.}});  // label 5: sixth
  const EvalOutput sums = task->evaluate(
      in_step(batch_of(logits.to(torch::kFloat64), {0, 4, 5}), classify_step(3, false)));
  EXPECT_EQ(sum_of(sums, "top1"), 1);
  EXPECT_EQ(sum_of(sums, "top5"), 2);
  EXPECT_EQ(sums.sums[0].weight, 3.0);
}

TEST_F(ClassifyTest, ProbabilitiesAreThoseOfTheLoss) {
  const auto probability = [&](ClassLoss loss, int64_t index) {
    const auto task = make_identity(loss);
    EXPECT_TRUE(task->classifies());
    const torch::Tensor logits = torch::tensor({{2., 0., 0., 0., 0., 1.}}, torch::kFloat64);
    const EvalOutput output =
        task->evaluate(in_step(batch_of(logits, {0}), classify_step(1, false)));
    return output.probability_bN[0][index].item<double>();
  };
  EXPECT_NEAR(probability(ClassLoss::kCrossEntropy, 5),
              std::exp(1.0) / (std::exp(2.0) + std::exp(1.0) + 4), 1e-14);
  EXPECT_NEAR(probability(ClassLoss::kBinary, 5), 1 / (1 + std::exp(-1.0)), 1e-14);
  EXPECT_EQ(probability(ClassLoss::kBinary, 1), 0.5);
}

TEST_F(ClassifyTest, TiesGoToTheLowerClass) {
  const auto task = make_identity();
  const torch::Tensor logits = torch::zeros({2, 6}, torch::kFloat64);
  const EvalOutput sums =
      task->evaluate(in_step(batch_of(logits, {0, 1}), classify_step(2, false)));
  EXPECT_EQ(sum_of(sums, "top1"), 1);
  EXPECT_EQ(
      sum_of(task->evaluate(in_step(batch_of(logits, {4, 5}), classify_step(2, false))), "top5"),
      1);
}

TEST_F(ClassifyTest, LogitsThatAreNoNumbersAreNeverRight) {
  const auto task = make_identity();
  const torch::Tensor logits =
      torch::full({1, 6}, std::numeric_limits<double>::quiet_NaN(), torch::kFloat64);
  const EvalOutput sums = task->evaluate(in_step(batch_of(logits, {0}), classify_step(1, false)));
  EXPECT_EQ(sum_of(sums, "top1"), 0);
  EXPECT_EQ(sum_of(sums, "top5"), 0);
}

TEST_F(ClassifyTest, EvaluationSumsTheLossOfSamples) {
  const auto task = make_identity();
  const EvalOutput sums = task->evaluate(
      in_step(batch_of(torch::zeros({3, 6}, torch::kFloat64), {0, 1, 2}), classify_step(3, false)));
  EXPECT_NEAR(sum_of(sums, "loss"), 3 * std::log(6.0), 1e-14);
}

const DataShape kSequences{
    .source = "listops", .sequence = 6, .vocabulary = 11, .has_lengths = true, .classes = 4};

TEST_F(ClassifyTest, ReadsTheMeanOrTheLastTokenOfASequence) {
  ModelContext build;
  build.tensor_options = build.tensor_options.dtype(torch::kFloat64);
  const auto features_of = [&](const std::string& keys) {
    Features asked = Features::kTokens;
    const auto make_backbone = [&](const std::string&, Features features) {
      asked = features;
      return backbone_;
    };
    struct Holder {
      Choice<Task> task;
      static constexpr auto fields() { return std::tuple{required("task", &Holder::task, "it")}; }
    };
    const auto choice = config::load_options_text<Holder>("task: {name: classify" + keys + "}",
                                                          "test", {"", {}, nullptr})
                            .options.task;
    const auto task = Registry<Task>::create(choice, {build, kSequences, make_backbone});
    EXPECT_EQ(task->unit().name, "tok");
    EXPECT_EQ(task->unit().per_sample, 6);
    return asked;
  };
  EXPECT_EQ(features_of(""), Features::kPooled);
  EXPECT_EQ(features_of(", pool: mean"), Features::kPooled);
  EXPECT_EQ(features_of(", pool: last"), Features::kLast);
}

TEST_F(ClassifyTest, ClassifiesSequencesOfSeveralLengths) {
  RankGrid grid = testing::self_grid();
  ModelContext build{{&grid, torch::TensorOptions().dtype(torch::kFloat64)}};
  build.compute_dtype = torch::kFloat64;
  for (const char* pool : {"mean", "last"}) {
    const auto task = testing::build_task(
        "model: {backbone: gpt2, width: 8, depth: 1, heads: 2}\n"
        "task: {name: classify, pool: " +
            std::string(pool) + "}",
        kSequences, build);
    testing::fill_parameters(*task);
    Batch batch;
    batch.token_bS = torch::tensor({{1, 2, 3, 0, 0, 0}, {4, 5, 6, 7, 8, 9}}, torch::kInt64);
    batch.length_b = torch::tensor({3, 6}, torch::kInt64);
    batch.label_b = torch::tensor({2, 0}, torch::kInt64);
    batch.context = testing::some_step(2, false);
    const torch::Tensor logits_bN = task->outputs(batch);
    EXPECT_EQ(logits_bN.sizes(), (at::IntArrayRef{2, 4}));
    Batch padded = batch;
    padded.token_bS = torch::tensor({{1, 2, 3, 9, 9, 9}, {4, 5, 6, 7, 8, 9}}, torch::kInt64);
    EXPECT_TRUE(task->outputs(padded).equal(logits_bN));
    padded.length_b = torch::tensor({4, 6}, torch::kInt64);
    EXPECT_FALSE(task->outputs(padded).equal(logits_bN));
    EXPECT_EQ(task->evaluate(batch).sums[0].weight, 2.0);
  }
}

/// Loss of a training pass, and its gradients, with samples of 3, 6, 1 and 5 tokens filled up to
/// `rows` with tokens that are none of theirs.
std::vector<torch::Tensor> padded_pass(const std::string& recipe, int64_t rows) {
  RankGrid grid = testing::self_grid();
  ModelContext build{{&grid, torch::TensorOptions().dtype(torch::kFloat64)}};
  build.compute_dtype = torch::kFloat64;
  const auto task = testing::build_task(recipe, kSequences, build);
  testing::fill_parameters(*task);
  initialise(buffers_of(*task), /*seed=*/1);
  Batch batch;
  batch.length_b = torch::tensor({3, 6, 1, 5}, torch::kInt64);
  batch.token_bS = torch::arange(4 * rows, torch::kInt64).remainder(10).view({4, rows});
  for (int64_t b = 0; b < 4; ++b) {
    const int64_t length = batch.length_b[b].item<int64_t>();
    batch.token_bS[b].narrow(0, 0, length).copy_(torch::arange(b, b + length));
  }
  batch.label_b = torch::tensor({2, 0, 1, 3}, torch::kInt64);
  batch.context = testing::some_step(4, true);
  const TrainOutput output = task->train(batch);
  output.loss.backward();
  std::vector<torch::Tensor> results{output.loss.detach()};
  for (const Parameter& parameter : parameters_of(*task)) {
    if (parameter.tensor.grad().defined()) results.push_back(parameter.tensor.grad());
  }
  for (const MoeStats& stats : output.moe) results.push_back(stats.sums);
  return results;
}

TEST_F(ClassifyTest, PaddingChangesNoLossAndNoGradient) {
  const std::string moe =
      ", sparse_blocks: {from: 0, every: 1}, moe: {router: {name: top_k, k: 2, noise: gaussian}, "
      "capacity: {mode: capped, factor: 0.8, min: 1, order: position}, experts: {count: 4, hidden: "
      "5}, losses: [{name: importance, weight: 0.1, scope: sequence}, {name: load, weight: 0.1}, "
      "{name: switch, weight: 0.1, scope: global}]}";
  const std::string chosen =
      ", causal: false, sparse_blocks: {from: 0, every: 1}, moe: {router: {name: expert_choice}, "
      "experts: {count: 4, hidden: 5}}";
  const std::string nexus =
      ", causal: false, nexus: {experts: {count: 3, hidden: 5}, memory: {count: 1, keys: 6, k: 3}}";
  const std::string gpt2 = "model: {backbone: gpt2, width: 8, depth: 2, heads: 2, context: 12";
  const std::string hspmn =
      "model: {backbone: hspmn, width: 8, depth: 2, heads: 4, kv_heads: 2, hidden: 10, context: "
      "12";
  const std::string gate = ", gate: {first_rate: 0.5, rate: 0.5, explore_fraction: 0.2}";
  const std::string chooses = ", causal: false, gate: {rate: 0.5, select: ";
  for (const std::string& model :
       {gpt2 + ", dropout: 0.3" + moe, hspmn + gate + moe, hspmn + gate + chosen,
        hspmn + gate + nexus, hspmn + chooses + "topk}", hspmn + chooses + "topk_predictor}",
        hspmn + chooses + "random}"}) {
    SCOPED_TRACE(model);
    const std::string recipe = model + "}\ntask: {name: classify, pool: mean}";
    const std::vector<torch::Tensor> expected = padded_pass(recipe, 6);
    for (const int64_t rows : {7, 12}) {
      const std::vector<torch::Tensor> found = padded_pass(recipe, rows);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_LT(testing::relative_error(found[i], expected[i]), 1e-12) << i;
      }
    }
  }
}

TEST_F(ClassifyTest, RefusesTheLastTokenOfAnImage) {
  const auto error = testing::config_error_of([] {
    testing::build_model(
        "model: {backbone: mixer, patch: 1, width: 2, depth: 0}\n"
        "task: {name: classify, pool: last}",
        {1, 2, 2}, 4, ModelContext{});
  });
  EXPECT_EQ(error,
            "task.pool: last needs sequences of tokens, data.source test gives images of 1 x 2 x 2 "
            "and labels of 4 classes");
}

TEST_F(ClassifyTest, HeadStartsAtZeroAndIsLeftOutOfTheHeadlessCount) {
  const auto task = make(4);
  EXPECT_EQ(task->head_parameters(), 4 * 6 + 4);
  for (const Parameter& parameter : parameters_of(*task)) {
    EXPECT_EQ(parameter.init.kind, Init::Kind::kConstant) << parameter.name;
    EXPECT_EQ(parameter.init.scale, 0.0) << parameter.name;
  }
}

}  // namespace
}  // namespace shoal
