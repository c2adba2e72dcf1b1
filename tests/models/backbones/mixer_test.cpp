#include <gtest/gtest.h>

#include <string>

#include "tests/support/build_model.h"
#include "tests/support/config_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"
#include "tests/support/some_batch.h"

// b images  S tokens  C width
namespace shoal {
namespace {

using testing::build_model;
using testing::count_parameters;
using testing::image_batch;
using testing::in_step;
using testing::kImageNet;
using testing::meta_context;
using testing::some_numbers;

struct Count {
  std::string recipe;
  int64_t with_head, headless;
};

TEST(Mixer, HasThePapersParametersExactly) {
  const Count counts[] = {
      {"model: {backbone: mixer, width: 512, depth: 8, token_hidden: 256, channel_hidden: 2048}",
       18528264, 18015264},
      {"model: {backbone: mixer, width: 512, depth: 8}", 18528264, 18015264},  // widths follow
      {"model: {backbone: mixer}", 59880472, 59111472},
      {"model: {backbone: mixer, width: 1024, depth: 24, token_hidden: 512, channel_hidden: 4096}",
       208196168, 207171168}};
  for (const Count& count : counts) {
    const auto task = build_model(count.recipe, kImageNet, 1000, meta_context());
    EXPECT_EQ(count_parameters(*task), count.with_head) << count.recipe;
    EXPECT_EQ(count_parameters(*task) - task->head_parameters(), count.headless) << count.recipe;
  }
}

constexpr const char* kTiny =
    "model: {backbone: mixer, patch: 2, width: 6, depth: 2, token_hidden: 5, channel_hidden: 7}";

std::shared_ptr<Task> tiny_model() {
  ModelContext build;
  build.tensor_options = build.tensor_options.dtype(torch::kFloat64);
  auto task = build_model(kTiny, {1, 4, 6}, 3, build);
  testing::fill_parameters(*task);
  return task;
}

TEST(Mixer, NamesParametersByTheirPlace) {
  const auto task = tiny_model();
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters_of(*task)) names.push_back(parameter.name);
  const std::vector<std::string> first{
      "backbone.stem.weight",
      "backbone.stem.bias",
      "backbone.blocks.0.token_norm.weight",
      "backbone.blocks.0.token_norm.bias",
      "backbone.blocks.0.token_mlp.fc1.weight",
  };
  ASSERT_GT(names.size(), first.size());
  EXPECT_EQ(std::vector<std::string>(names.begin(), names.begin() + 5), first);
  EXPECT_EQ(names.back(), "head.bias");
}

TEST(Mixer, GradientsOfTheWholeModelAreThoseOfFiniteDifferences) {
  const auto task = tiny_model();
  const Batch batch =
      image_batch(some_numbers({2, 1, 4, 6}, 1), torch::tensor({2, 0}, torch::kInt64));
  StepContext step;
  step.training = true;
  step.samples_in_step = 2;
  std::vector<torch::Tensor> parameters;
  for (const Parameter& parameter : parameters_of(*task)) parameters.push_back(parameter.tensor);
  EXPECT_LT(
      testing::gradient_error([&] { return task->train(in_step(batch, step)).loss; }, parameters),
      1e-6);
}

TEST(Mixer, AnImagesFeaturesDoNotDependOnItsBatch) {
  const auto task = tiny_model();
  const torch::Tensor image = some_numbers({3, 1, 4, 6}, 1);
  const auto loss_of = [&](int64_t first, int64_t count) {
    const torch::Tensor label = torch::zeros({count}, torch::kInt64);
    return task->evaluate(in_step(image_batch(image.narrow(0, first, count), label), StepContext{}))
        .sums[0]
        .sum;
  };
  EXPECT_NEAR(loss_of(0, 1) + loss_of(1, 2), loss_of(0, 3), 1e-13);
}

TEST(Mixer, RefusesAPatchThatDoesNotDivideTheImage) {
  EXPECT_EQ(testing::config_error_of([] {
              build_model("model: {backbone: mixer, patch: 5}", kImageNet, 10, meta_context());
            }),
            "model.patch: 5 does not divide images of 224 x 224 pixels");
}

}  // namespace
}  // namespace shoal
