#include "models/formats/weight_format.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/base/error.h"
#include "tests/support/foreign_model.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::some_numbers;

TEST(WeightName, LaysOutEachWayWhatTheOtherLaidOut) {
  const torch::Tensor matrix = some_numbers({4, 6}, 1);
  const WeightName transposed{"ours", "theirs", {}, /*is_transposed=*/true};
  const torch::Tensor turned = transposed.to_theirs(matrix, torch::kFloat64);
  EXPECT_TRUE(at::equal(turned, matrix.t()));
  EXPECT_TRUE(at::equal(transposed.to_ours(turned, {4, 6}, torch::kFloat64), matrix));

  const WeightName shaped{"ours", "theirs", {4, 3, 1, 2}};
  const torch::Tensor folded = shaped.to_theirs(matrix, torch::kFloat64);
  EXPECT_EQ(folded.sizes(), torch::IntArrayRef({4, 3, 1, 2}));
  EXPECT_TRUE(at::equal(folded.flatten(1), matrix));
  EXPECT_TRUE(at::equal(shaped.to_ours(folded, {4, 6}, torch::kFloat64), matrix));
}

TEST(WeightName, PadsWithZerosAndDropsThem) {
  const WeightName padded{"ours", "theirs", {3, 2}};
  const torch::Tensor rows = some_numbers({3, 2}, 1);
  const torch::Tensor ours = padded.to_ours(rows, {5, 2}, torch::kFloat64);
  EXPECT_TRUE(at::equal(ours.narrow(0, 0, 3), rows));
  EXPECT_EQ(ours.narrow(0, 3, 2).abs().max().item<double>(), 0.0);
  EXPECT_TRUE(at::equal(padded.to_theirs(ours, torch::kFloat64), rows));
}

TEST(WeightFormat, EachNameIsListedOnceInBothDirections) {
  const DataShape images{.source = "test", .image = ImageShape{3, 32, 32}, .classes = 10};
  const DataShape text{.source = "test", .sequence = 8, .vocabulary = 256, .labels_tokens = true};
  for (const std::string& name : members_of<WeightFormat>().names()) {
    const auto format = Registry<WeightFormat>::create(Choice<WeightFormat>(name), {});
    const Choice<Backbone> backbone{std::string_view(format->backbone())};
    std::set<std::string> ours, theirs;
    for (const WeightName& weight :
         format->names(backbone, format->program() == "timm" ? images : text)) {
      EXPECT_TRUE(theirs.insert(weight.theirs).second) << weight.theirs;
      const bool is_new = ours.insert(weight.ours).second;
      EXPECT_TRUE(is_new || weight.is_copy) << weight.ours;
    }
    EXPECT_GT(ours.size(), 100u) << name;
  }
}

TEST(WeightFormat, WeightsWithoutANameAreListed) {
  StateList model;
  model.tensors.push_back({{"backbone.a", Dtype::kF32, {1}, 0, 0}, {}});
  model.tensors.push_back({{"backbone.b", Dtype::kF32, {1}, 0, 0}, {}});
  require_all_named({{"backbone.a", "a"}, {"backbone.b", "b"}}, model);
  try {
    require_all_named({{"backbone.a", "a"}}, model);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("backbone.b"));
    EXPECT_EQ(error.code(), ExitCode::kMismatch);
  }
}

}  // namespace
}  // namespace shoal
