#include "models/hspmn/gate_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace shoal {
namespace {

/// One gate that opened for some tokens, and one that opened for none.
std::vector<GateReport> two_gates() {
  return {{.layer = "blocks.0.gate",
           .rate = 0.5,
           .target = 0.25,
           .probability = 0.75,
           .entropy = 0.5,
           .threshold = 1.5,
           .dropped = 0.125,
           .rate_by_position = {1.0, 0.0}},
          {.layer = "blocks.1.gate", .probability = 0.25, .entropy = 0.25}};
}

TEST(GateLog, HasMeansOverLayersAndTheNumberOfDeadOnes) {
  const LayerLog::Report report = report_of(two_gates(), 7);
  EXPECT_EQ(nlohmann::json::parse(report.means.to_json()),
            nlohmann::json({{"gate_rate", 0.25},
                            {"gate_probability", 0.5},
                            {"gate_entropy", 0.375},
                            {"gate_dropped", 0.0625},
                            {"gate_dead", 1}}));
  EXPECT_EQ(report.shown, "attend 25.0%");
}

TEST(GateLog, IsEmptyWithoutGates) {
  const LayerLog::Report report = report_of({}, 7);
  EXPECT_TRUE(report.records.empty());
  EXPECT_TRUE(report.means.entries().empty());
  EXPECT_EQ(report.shown, "");
}

TEST(GateLog, HasARecordWithAllOfOneGate) {
  EXPECT_EQ(nlohmann::json::parse(report_of(two_gates(), 7).records.at(0).to_json()),
            nlohmann::json({{"step", 7},
                            {"layer", "blocks.0.gate"},
                            {"rate", 0.5},
                            {"target", 0.25},
                            {"probability", 0.75},
                            {"entropy", 0.5},
                            {"threshold", 1.5},
                            {"dropped", 0.125},
                            {"rate_by_position", {1.0, 0.0}}}));
}

}  // namespace
}  // namespace shoal
