#include "launch/report/known_metrics.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(MetricInfo, NamesKnownKeysAndTakesOthersAsTheyAre) {
  EXPECT_EQ(metric_info("lr").label, "learning rate");
  EXPECT_EQ(metric_info("lr").group, MetricGroup::kTraining);
  EXPECT_EQ(metric_info("data_wait").quantity, Quantity::kShare);
  EXPECT_EQ(metric_info("a_new_number").label, "a new number");
  EXPECT_EQ(metric_info("a_new_number").group, MetricGroup::kOther);
  EXPECT_EQ(metric_info("moe_new").group, MetricGroup::kExperts);
  EXPECT_EQ(metric_info("gate_new").group, MetricGroup::kGates);
  EXPECT_EQ(metric_info("cells_distance").group, MetricGroup::kSparsity);
  EXPECT_EQ(metric_info("moe_loss_importance").label, "balance loss: importance");
}

TEST(MetricInfo, NamesTheSetOfItsMetric) {
  EXPECT_EQ(metric_info("v2.top1").label, "top-1, v2");
  EXPECT_EQ(metric_info("v2.top1").quantity, metric_info("top1").quantity);
}

TEST(ValueText, SuitsTheQuantity) {
  EXPECT_EQ(value_text(0.60341, Quantity::kPlain), "0.6034");
  EXPECT_EQ(value_text(0, Quantity::kPlain), "0");
  EXPECT_EQ(value_text(12345.6, Quantity::kPlain), "12,346");
  EXPECT_EQ(value_text(-1234567, Quantity::kPlain), "-1,234,567");
  EXPECT_EQ(value_text(0.0000625, Quantity::kPlain), "6.25e-05");
  EXPECT_EQ(value_text(0.0175, Quantity::kShare), "1.75 %");
  EXPECT_EQ(value_text(0.875, Quantity::kShare), "87.5 %");
  EXPECT_EQ(value_text(0, Quantity::kShare), "0 %");
  EXPECT_EQ(value_text(1536, Quantity::kBytes), "1.5 KiB");
  EXPECT_EQ(value_text(184 * 0x1p20, Quantity::kBytes), "184 MiB");
}

}  // namespace
}  // namespace shoal
