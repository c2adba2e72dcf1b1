#include "moe/moe_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace shoal {
namespace {

using ::testing::SizeIs;

/// With its mean and dead units; entropies and drops are `share`.
MoeReport layer_of(std::vector<int64_t> load_U, double share,
                   std::vector<std::pair<std::string, double>> losses) {
  MoeReport layer;
  layer.load_U = std::move(load_U);
  double total = 0.0;
  for (const int64_t load : layer.load_U) {
    total += static_cast<double>(load);
    layer.dead_units += load == 0;
  }
  layer.load_mean = total / static_cast<double>(layer.load_U.size());
  layer.load_entropy = share;
  layer.router_entropy = share / 2;
  layer.dropped = share / 4;
  layer.losses = std::move(losses);
  return layer;
}

nlohmann::json metrics_of(const std::vector<MoeReport>& layers) {
  MetricsRecord record;
  add_moe_metrics(layers, record);
  return nlohmann::json::parse(record.to_json());
}

TEST(MoeMetrics, AreTakenOverAllUnitsAndLayers) {
  // Over their layers' means of 2 and 10: 0, 1, 1, 2 and 0.5, 1.5.
  const nlohmann::json metrics =
      metrics_of({layer_of({0, 2, 2, 4}, 0.8, {{"switch", 1.5}, {"z", 4.0}}),
                  layer_of({5, 15}, 0.4, {{"switch", 1.25}})});
  EXPECT_DOUBLE_EQ(metrics["moe_load_p50"], 1.0);
  EXPECT_DOUBLE_EQ(metrics["moe_load_p95"], 1.875);  // of 0, .5, 1, 1, 1.5, 2 at place 4.75
  EXPECT_DOUBLE_EQ(metrics["moe_load_max"], 2.0);
  EXPECT_EQ(metrics["moe_dead_units"], 1);
  EXPECT_DOUBLE_EQ(metrics["moe_load_entropy"], 0.6);
  EXPECT_DOUBLE_EQ(metrics["moe_router_entropy"], 0.3);
  EXPECT_DOUBLE_EQ(metrics["moe_dropped"], 0.15);
  EXPECT_DOUBLE_EQ(metrics["moe_loss_switch"], 1.375);
  EXPECT_DOUBLE_EQ(metrics["moe_loss_z"], 4.0);
}

TEST(MoeMetrics, HaveAsManyKeysWhateverTheModelsSize) {
  const std::vector<MoeReport> small{layer_of({1, 2}, 0.5, {{"load", 1.0}})};
  const std::vector<MoeReport> large(30,
                                     layer_of(std::vector<int64_t>(500, 7), 0.5, {{"load", 1.0}}));
  EXPECT_THAT(metrics_of(small), SizeIs(8));
  EXPECT_THAT(metrics_of(large), SizeIs(8));
}

TEST(MoeMetrics, InformationAndWorkAreOfTheLayersThatHaveThem) {
  std::vector<MoeReport> layers(3, layer_of({1, 1}, 0.5, {}));
  EXPECT_FALSE(metrics_of(layers).contains("moe_mutual_information"));
  EXPECT_FALSE(metrics_of(layers).contains("moe_multiply_adds"));
  layers[0].mutual_information = 0.25;
  layers[2].mutual_information = 0.75;
  layers[1].multiply_adds = 100;
  layers[2].multiply_adds = 20;
  EXPECT_DOUBLE_EQ(metrics_of(layers)["moe_mutual_information"], 0.5);
  EXPECT_DOUBLE_EQ(metrics_of(layers)["moe_multiply_adds"], 120);
}

TEST(MoeMetrics, OfModelsWithoutLayersAreNone) { EXPECT_TRUE(metrics_of({}).empty()); }

TEST(MoeMetrics, LayersWithoutTokensCountAsDeadAndSpoilNothing) {
  const nlohmann::json metrics = metrics_of({layer_of({0, 0}, 0, {}), layer_of({1, 3}, 1, {})});
  EXPECT_DOUBLE_EQ(metrics["moe_load_max"], 1.5);
  EXPECT_EQ(metrics["moe_dead_units"], 2);
  EXPECT_DOUBLE_EQ(metrics_of({layer_of({0, 0}, 0, {})})["moe_load_p95"], 0.0);
}

TEST(Percentile, IsInterpolatedBetweenTheNearestValues) {
  EXPECT_DOUBLE_EQ(percentile({3, 1, 2}, 0.5), 2.0);
  EXPECT_DOUBLE_EQ(percentile({4, 1}, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(percentile({4, 1}, 1.0), 4.0);
  EXPECT_DOUBLE_EQ(percentile({4}, 0.95), 4.0);
  EXPECT_DOUBLE_EQ(percentile({}, 0.5), 0.0);
}

}  // namespace
}  // namespace shoal
