#include "launch/runs/expert_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::ordered_json records_of(const std::string& layers) {
  return nlohmann::ordered_json::parse(
      R"({"file": "runs/a/experts.jsonl", "step": 7, "metrics": {}, "layers": [)" + layers + "]}");
}

TEST(LoadShares, SetMemoryUnitsApart) {
  EXPECT_EQ(load_shares_line("moe", {6, 3, 1}, 0), "moe: 0=60.0% 1=30.0% 2=10.0%\n");
  EXPECT_EQ(load_shares_line("moe", {6, 3, 1}, 1), "moe: 0=60.0% 1=30.0%; memory units 2=10.0%\n");
  EXPECT_EQ(load_shares_line("moe", {1, 1}, 2), "moe: memory units 0=50.0% 1=50.0%\n");
  EXPECT_EQ(load_shares_line("moe", {0, 0}, 0), "moe: 0=0.0% 1=0.0%\n");
}

TEST(ExpertRecords, CountMemoryUnitsApart) {
  const std::string experts = R"({"layer": "a", "load": [3, 1], "rank_overload": [1.5, 0.5]})";
  EXPECT_THAT(expert_text(records_of(experts)),
              AllOf(HasSubstr("runs/a/experts.jsonl, step 7"), HasSubstr("a: 0=75.0% 1=25.0%"),
                    HasSubstr("a: 0=1.50 1=0.50"), Not(HasSubstr("memory"))));
  const std::string nexus = R"({"layer": "b", "load": [2, 1, 1], "memory_units": 1})";
  EXPECT_THAT(
      expert_text(records_of(experts + "," + nexus)),
      AllOf(HasSubstr("experts  memory units"), HasSubstr("\n  a          2        0 "),
            HasSubstr("\n  b          2        1 "),
            HasSubstr("b: 0=50.0% 1=25.0%; memory units 2=25.0%"), Not(HasSubstr("b: 0=1"))));
}

}  // namespace
}  // namespace shoal
