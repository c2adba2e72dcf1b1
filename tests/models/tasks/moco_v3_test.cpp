#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/cross_entropy_loss.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "models/moco/nearest_neighbours.h"
#include "models/moco/projection_head.h"
#include "models/task.h"
#include "tests/support/build_model.h"
#include "tests/support/config_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"
#include "tests/support/ranks.h"
#include "tests/support/some_batch.h"

// b images  D features
namespace shoal {
namespace {

using testing::build_model;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::in_step;
using testing::some_numbers;
using testing::some_step;
using testing::sum_of;

constexpr ImageShape kImage{3, 8, 8};
constexpr int64_t kImages = 6;
constexpr double kTemperature = 0.5;

/// Experts with noise and balance losses, stochastic depth.
const std::string kVit =
    "model: {backbone: vit, patch: 4, width: 8, depth: 2, heads: 2, hidden: 12, drop_path: 0.3, "
    "pool: mean, moe: {router: {name: top_k, k: 1, noise: gaussian}, losses: [{name: importance, "
    "weight: 0.1, scope: sequence}], experts: {count: 3, hidden: 6}}}\n";
const std::string kTask =
    "task: {name: moco_v3, hidden: 12, out: 6, temperature: 0.5, neighbours: 3}\n";

class MocoV3Test : public ::testing::Test {
 protected:
  MocoV3Test() {
    build_.grid = &grid_;
    build_.tensor_options = build_.tensor_options.dtype(torch::kFloat64);
    task_ = filled_task(build_);
  }

  static std::shared_ptr<Task> filled_task(const ModelContext& build) {
    auto task = build_model(kVit + kTask, kImage, 3, build);
    testing::fill_parameters(*task);
    for (const Parameter& buffer : buffers_of(*task)) {
      if (buffer.name.ends_with("running_mean")) buffer.tensor.zero_();
      if (buffer.name.ends_with("running_var")) buffer.tensor.fill_(1);
    }
    return task;
  }

  template <class Module>
  std::shared_ptr<Module> module(const std::string& name) const {
    return std::dynamic_pointer_cast<Module>(task_->named_children()[name]);
  }
  static Batch two_views() {
    Batch batch;
    batch.image_bVCHW = some_numbers({kImages, 2, 3, 8, 8}, 3);
    batch.label_b = torch::arange(kImages, torch::kInt64).remainder(3);
    return batch;
  }
  static torch::Tensor unit(const torch::Tensor& x_bD) {
    return x_bD / x_bD.norm(2, {1}, /*keepdim=*/true);
  }

  RankGrid grid_ = testing::self_grid();
  ModelContext build_;
  std::shared_ptr<Task> task_;
};

// Each view alone through the same modules, and the published formula.
TEST_F(MocoV3Test, LossIsSymmetricInfoNceOfBothViewsAndTheMeanOfTheirBalanceLosses) {
  const Batch batch = in_step(two_views(), some_step(kImages, /*training=*/true));
  const auto query_encoder = module<Backbone>("backbone"), keys = module<Backbone>("key_backbone");
  const auto projector = module<ProjectionHeadImpl>("projector");
  const auto predictor = module<ProjectionHeadImpl>("predictor");
  const auto key_projector = module<ProjectionHeadImpl>("key_projector");
  std::vector<torch::Tensor> query_bD, key_bD;
  torch::Tensor expected = torch::zeros({}, torch::kFloat64);
  for (const int64_t view : {0, 1}) {
    StepContext step = context_of(batch, view);
    const ModelOutput output = query_encoder->forward(input_of(batch, view), step);
    expected = expected + output.auxiliary_loss / 2;
    query_bD.push_back(unit(predictor->forward(projector->forward(output.pooled_bD, true), true)));
    step.training = false;
    key_bD.push_back(
        unit(key_projector->forward(keys->forward(input_of(batch, view), step).pooled_bD, true)));
  }
  const torch::Tensor own = torch::arange(kImages, torch::kInt64);
  for (const size_t view : {0, 1}) {
    expected = expected + 2 * kTemperature *
                              at::cross_entropy_loss(
                                  query_bD[view].mm(key_bD[1 - view].t()) / kTemperature, own);
  }
  EXPECT_NEAR(task_->train(batch).loss.item<double>(), expected.item<double>(), 1e-12);
}

TEST_F(MocoV3Test, NoGradientReachesTheMomentumEncoder) {
  task_->train(in_step(two_views(), some_step(kImages, true))).loss.backward();
  int64_t keys = 0, others = 0;
  for (const Parameter& parameter : parameters_of(*task_)) {
    const bool is_key = parameter.name.starts_with("key_");
    EXPECT_EQ(parameter.tensor.requires_grad(), !is_key) << parameter.name;
    EXPECT_EQ(parameter.tensor.grad().defined(), !is_key) << parameter.name;
    (is_key ? keys : others) += parameter.tensor.numel();
  }
  int64_t predictor = 0;
  for (const torch::Tensor& own : module<ProjectionHeadImpl>("predictor")->parameters()) {
    predictor += own.numel();
  }
  EXPECT_EQ(keys, others - predictor);
}

TEST_F(MocoV3Test, FirstStepMakesTheKeysThoseOfTheQueries) {
  task_->make_step_rule({.total_steps = 10})->before_forward(0);
  StepContext step = some_step(kImages, /*training=*/false);
  const Batch batch = in_step(two_views(), step);
  EXPECT_TRUE(module<Backbone>("backbone")
                  ->forward(input_of(batch), step)
                  .pooled_bD.equal(
                      module<Backbone>("key_backbone")->forward(input_of(batch), step).pooled_bD));
  EXPECT_EQ(task_->metrics(task_->evaluate(batch).sums).back().value, 1.0)
      << "then both routers agree";
}

TEST_F(MocoV3Test, EvaluationReportsWhatItSees) {
  const Batch batch = in_step(two_views(), some_step(kImages, /*training=*/false));
  const EvalOutput without = task_->evaluate(batch);
  EXPECT_THAT(task_->metrics(without.sums),
              ::testing::Not(Contains(::testing::Field(&Metric::name, "knn_top1"))))
      << "there are no references yet";
  task_->references()->add(batch);
  const EvalOutput output = task_->evaluate(batch);
  const torch::Tensor query_bD = unit(task_->outputs(batch));
  EXPECT_NEAR(sum_of(output, "feature_std") / kImages,
              query_bD.std(0, /*unbiased=*/false).mean().item<double>(), 1e-14);
  const StepContext step = context_of(batch, 0);
  const ModelOutput query = module<Backbone>("backbone")->forward(input_of(batch, 0), step);
  const ModelOutput key = module<Backbone>("key_backbone")->forward(input_of(batch, 0), step);
  const torch::Tensor key_bD =
      unit(module<ProjectionHeadImpl>("key_projector")->forward(key.pooled_bD, false));
  const torch::Tensor logit_bb = query_bD.mm(key_bD.t()) / kTemperature;
  const torch::Tensor own = torch::arange(kImages, torch::kInt64);
  EXPECT_NEAR(sum_of(output, "loss") / kImages,
              2 * kTemperature * at::cross_entropy_loss(logit_bb, own).item<double>(), 1e-12);
  EXPECT_EQ(sum_of(output, "contrast_top1"), (logit_bb.argmax(1) == own).sum().item<double>());
  NearestNeighbours neighbours(3, 0.07);
  neighbours.add(query.pooled_bD, batch.label_b, *grid_.world);
  EXPECT_EQ(sum_of(output, "knn_top1"),
            (neighbours.classify(query.pooled_bD) == batch.label_b).sum().item<double>());
  double agree = 0.0;
  for (size_t layer = 0; layer < query.moe.size(); ++layer) {
    agree += (query.moe[layer].first_unit_T == key.moe[layer].first_unit_T).sum().item<double>();
  }
  EXPECT_EQ(sum_of(output, "key_router_agreement"), agree);
  std::vector<std::string> names;
  for (const Metric& metric : task_->metrics({})) names.push_back(metric.name);
  EXPECT_THAT(names, ::testing::ElementsAre("loss", "contrast_top1", "feature_std", "knn_top1",
                                            "key_router_agreement"));
  task_->references()->clear();
  EXPECT_EQ(task_->evaluate(batch).sums.size(), without.sums.size());
  // References that are drawn from the evaluated samples, each or every other one, do not vote for
  // themselves.
  for (const int64_t stride : {1, 2}) {
    torch::Tensor own_b = torch::full({kImages}, -1, torch::kInt64);
    for (int64_t n = 0; n * stride < kImages; ++n) own_b[n * stride] = n;
    task_->references()->clear();
    task_->references()->add(batch);
    task_->references()->set_own(own_b);
    EXPECT_EQ(sum_of(task_->evaluate(batch), "knn_top1"),
              (neighbours.classify(query.pooled_bD, own_b) == batch.label_b).sum().item<double>());
  }
}

// Keys of other ranks are in the way of a query as those of its own are.
TEST_F(MocoV3Test, EvaluationOfUnequalSharesIsThatOfAll) {
  const Batch whole = in_step(two_views(), some_step(kImages, /*training=*/false));
  const EvalOutput expected = task_->evaluate(whole);
  std::mutex mutex;
  std::map<std::string, double> sums;
  testing::run_grid(1, 2, [&](RankGrid& grid) {
    ModelContext build = build_;
    build.grid = &grid;
    const auto task = filled_task(build);
    const int64_t first = grid.world->rank() == 0 ? 0 : 4, count = first == 0 ? 4 : 2;
    Batch own = whole;
    own.image_bVCHW = whole.image_bVCHW.narrow(0, first, count);
    own.label_b = whole.label_b.narrow(0, first, count);
    own.context.sample_b = whole.context.sample_b.narrow(0, first, count);
    const EvalOutput output = task->evaluate(own);
    const std::lock_guard lock(mutex);
    for (const NamedSum& sum : output.sums) sums[sum.name] += sum.sum;
  });
  for (const NamedSum& sum : expected.sums) {
    EXPECT_NEAR(sums.at(sum.name), sum.sum, 1e-10) << sum.name;
  }
}

TEST_F(MocoV3Test, NearestNeighbourOfAReferenceIsItself) {
  const auto task = build_model(kVit + "task: {name: moco_v3, hidden: 12, out: 6, neighbours: 1}",
                                kImage, 3, build_);
  testing::fill_parameters(*task);
  const Batch batch = in_step(two_views(), some_step(kImages, /*training=*/false));
  task->references()->add(batch);
  EXPECT_EQ(sum_of(task->evaluate(batch), "knn_top1"), kImages);
}

TEST_F(MocoV3Test, RankWithoutSamplesTakesPart) {
  Batch none = two_views();
  none.image_bVCHW = none.image_bVCHW.narrow(0, 0, 0);
  none.label_b = none.label_b.narrow(0, 0, 0);
  StepContext step = some_step(0, /*training=*/true);
  step.samples_in_step = step.samples_in_micro = kImages;
  EXPECT_EQ(task_->train(in_step(none, step)).loss.item<double>(), 0.0);
  step.training = false;
  task_->references()->add(in_step(two_views(), some_step(kImages, false)));
  EXPECT_EQ(sum_of(task_->evaluate(in_step(none, step)), "knn_top1"), 0.0);
}

// Spec: projector 3 layers and predictor 2, 4096 wide, of features of 768.
TEST_F(MocoV3Test, HeadsHaveThePublishedSizes) {
  const auto task = build_model("model: {backbone: vit, depth: 0}\ntask: {name: moco_v3}",
                                testing::kImageNet, 1000, testing::meta_context());
  const auto size = [&](const std::string& name) {
    return testing::count_parameters(*task->named_children()[name]);
  };
  EXPECT_EQ(size("projector"), 20'987'904);
  EXPECT_EQ(size("predictor"), 2'105'344);
  EXPECT_EQ(size("key_projector"), 20'987'904);
}

TEST_F(MocoV3Test, MistakesAreNamed) {
  const auto error_of = [&](const std::string& recipe, const DataShape& data) {
    return testing::config_error_of([&] { testing::build_task(recipe, data, build_); });
  };
  const DataShape images{.source = "test", .image = kImage, .classes = 3};
  for (const auto& [key, value] : {std::pair{"hidden", "0"}, std::pair{"out", "0"},
                                   std::pair{"temperature", "0"}, std::pair{"temperature", "-1"},
                                   std::pair{"momentum", "1.5"}, std::pair{"neighbours", "0"}}) {
    EXPECT_THAT(error_of(kVit + "task: {name: moco_v3, " + key + ": " + value + "}", images),
                HasSubstr(std::string("task.") + key))
        << value;
  }
  EXPECT_THAT(error_of("model: {backbone: gpt2}\n" + kTask,
                       {.source = "test", .sequence = 4, .vocabulary = 5}),
              HasSubstr("task.name: moco_v3 needs images, data.source test gives"));
  const std::string hashed =
      "model: {backbone: vit, patch: 4, width: 8, depth: 1, heads: 2, hidden: 12, moe: {router: "
      "{name: hash, k: 1}, experts: {count: 3, hidden: 6}}}\n";
  EXPECT_THAT(error_of(hashed + kTask, images),
              HasSubstr("a router that draws a token's experts by the layer's name"));
}

TEST(LinearProbe, FeaturesAreThoseOfAnEvaluationWithoutGradients) {
  RankGrid grid = testing::self_grid();
  ModelContext build;
  build.grid = &grid;
  build.tensor_options = build.tensor_options.dtype(torch::kFloat64);
  const auto task = build_model(kVit + "task: {name: linear_probe}", kImage, 3, build);
  testing::fill_parameters(*task);
  Batch batch = testing::some_batch(kImages, kImage);
  batch.context = some_step(kImages, /*training=*/true);
  const torch::Tensor loss = task->train(batch).loss;
  batch.context.training = false;
  EXPECT_NEAR(loss.item<double>(), sum_of(task->evaluate(batch), "loss") / kImages, 1e-12)
      << "neither noise nor stochastic depth, no balance loss";
  loss.backward();
  for (const Parameter& parameter : parameters_of(*task)) {
    EXPECT_EQ(parameter.tensor.grad().defined(), parameter.name.starts_with("head."))
        << parameter.name;
  }
}

TEST(LinearProbe, OfPixelsIsALinearMapOfTheImage) {
  ModelContext build;
  build.tensor_options = build.tensor_options.dtype(torch::kFloat64);
  const auto task =
      build_model("model: {backbone: flat_pixels}\ntask: {name: linear_probe}", kImage, 3, build);
  testing::fill_parameters(*task);
  const auto tensors = parameters_of(*task);
  ASSERT_EQ(tensors.size(), 2u) << "the head's";
  const Batch batch = in_step(testing::some_batch(kImages, kImage), some_step(kImages, false));
  const torch::Tensor expected =
      batch.image_bCHW().flatten(1).mm(tensors[0].tensor.t()) + tensors[1].tensor;
  EXPECT_TRUE(torch::allclose(task->outputs(batch), expected));
}

TEST(LinearProbe, HeadBeginsWithSmallWeights) {
  const auto task =
      build_model(kVit + "task: {name: linear_probe}", kImage, 3, testing::meta_context());
  for (const Parameter& parameter : parameters_of(*task)) {
    if (parameter.name == "head.weight") {
      EXPECT_EQ(parameter.init.kind, Init::Kind::kNormal);
      EXPECT_EQ(parameter.init.scale, 0.01);
    }
    if (parameter.name == "head.bias") {
      EXPECT_EQ(parameter.init.scale, 0.0);
    }
  }
}

}  // namespace
}  // namespace shoal
