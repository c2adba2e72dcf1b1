#include "launch/train/tensorboard_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

MoeReport layer_named(const std::string& name, std::vector<int64_t> load_U) {
  MoeReport layer;
  layer.layer = name;
  layer.load_U = std::move(load_U);
  layer.load_mean = 1.0;
  return layer;
}

TEST(TensorBoardEvents, HoldTheNumbersOfARecordAndNoTexts) {
  TensorBoardEvents events;
  const MetricsRecord record =
      MetricsRecord().add("step", int64_t{7}).add_exact("loss", 0.5).add("samples", int64_t{56});
  const StepEvent step = events.step(7, record, {});
  EXPECT_EQ(step.step, 7);
  EXPECT_EQ(step.summary.bytes(),
            EventSummary().add_scalar("train/loss", 0.5).add_scalar("train/samples", 56).bytes());
  const StepEvent evaluation = events.evaluation(8, record);
  EXPECT_EQ(evaluation.step, 8);
  EXPECT_EQ(
      evaluation.summary.bytes(),
      EventSummary().add_scalar("evaluate/loss", 0.5).add_scalar("evaluate/samples", 56).bytes());
  EXPECT_FALSE(events.rest().has_value());
}

TEST(TensorBoardEvents, HoldTheExpertsOfALayer) {
  MoeReport layer = layer_named("blocks.1.moe", {2, 6, 4, 0});
  layer.load_mean = 3;
  layer.load_max = 6;
  layer.load_entropy = 0.75;
  layer.dead_units = 1;
  layer.dropped = 0.125;
  TensorBoardEvents events;
  const std::string group = "experts/blocks.1.moe/";
  EXPECT_EQ(events.step(1, MetricsRecord(), {layer}).summary.bytes(),
            EventSummary()
                .add_histogram(group + "load", {2.0 / 3, 2.0, 4.0 / 3, 0.0})
                .add_scalar(group + "load_max_over_mean", 2.0)
                .add_scalar(group + "load_entropy", 0.75)
                .add_scalar(group + "dead_experts", 1)
                .add_scalar(group + "dropped", 0.125)
                .bytes());
}

TEST(TensorBoardEvents, HaveTagsOfABoundedNumberOfLayers) {
  std::vector<MoeReport> layers;
  for (int i = 0; i < 40; ++i) layers.push_back(layer_named("layer" + std::to_string(i), {1, 1}));
  TensorBoardEvents events;
  const std::string bytes = events.step(1, MetricsRecord(), layers).summary.bytes();
  EXPECT_THAT(bytes, HasSubstr("experts/layer31/load_entropy"));
  EXPECT_THAT(bytes, Not(HasSubstr("experts/layer32")));
}

// The picture is a function of the summed loads.
TEST(TensorBoardEvents, DrawTheLoadsSinceThePictureBefore) {
  const auto picture_after = [](const std::vector<std::vector<int64_t>>& loads) {
    TensorBoardEvents events;
    for (size_t i = 0; i < loads.size(); ++i) {
      events.step(static_cast<int64_t>(i), MetricsRecord(), {layer_named("moe", loads[i])});
    }
    return events.evaluation(9, MetricsRecord()).summary.bytes();
  };
  EXPECT_THAT(picture_after({{1, 3}}), HasSubstr("experts/load"));
  EXPECT_EQ(picture_after({{1, 3}, {5, 0}}), picture_after({{6, 3}}));
  EXPECT_NE(picture_after({{1, 3}, {5, 0}}), picture_after({{1, 3}}));

  TensorBoardEvents events;
  events.step(1, MetricsRecord(), {layer_named("moe", {5, 0})});
  events.evaluation(1, MetricsRecord());
  events.step(2, MetricsRecord(), {layer_named("moe", {1, 3})});
  const std::optional<StepEvent> rest = events.rest();
  ASSERT_TRUE(rest.has_value());
  EXPECT_EQ(rest->step, 2);
  EXPECT_EQ(rest->summary.bytes(), picture_after({{1, 3}}));
  EXPECT_FALSE(events.rest().has_value());
}

}  // namespace
}  // namespace shoal
