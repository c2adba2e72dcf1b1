#include "parallel/checkpoint/save_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/checkpoint/manifest.h"
#include "runtime/base/error.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string list(const std::vector<std::pair<std::string, int64_t>>& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, rows] : tensors) entries.push_back({name, Dtype::kF32, {rows, 1}, 0, 0});
  return describe_entries(entries);
}

std::vector<std::vector<std::string>> names(const SavePlan& plan) {
  std::vector<std::vector<std::string>> found;
  for (const auto& entries : plan) {
    found.emplace_back();
    for (const SafetensorsEntry& entry : entries) found.back().push_back(entry.name);
  }
  return found;
}

TEST(SavePlan, WritesDenseTensorsOnceSpreadByBytes) {
  const std::string all = list({{"a", 9}, {"b", 5}, {"c", 4}, {"d \"x\"\n", 1}});
  EXPECT_THAT(names(plan_save({all, all})),
              ElementsAre(ElementsAre("a", "d \"x\"\n"), ElementsAre("b", "c")));
}

TEST(SavePlan, GivesUnitsToRanksThatHoldThem) {
  // Expert 0 on ranks 0 and 2, expert 1 on ranks 1 and 3.
  const SavePlan plan = plan_save({list({{"e.0", 8}, {"w", 3}}), list({{"e.1", 8}, {"w", 3}}),
                                   list({{"e.0", 8}, {"w", 3}}), list({{"e.1", 8}, {"w", 3}})});
  EXPECT_THAT(names(plan),
              ElementsAre(ElementsAre("e.0"), ElementsAre("e.1"), ElementsAre("w"), IsEmpty()));
  EXPECT_THAT(plan[0][0].shape, ElementsAre(8, 1));
}

TEST(SavePlan, AcceptsRanksWithoutState) {
  EXPECT_THAT(names(plan_save({"", list({{"a", 1}}), ""})),
              ElementsAre(IsEmpty(), ElementsAre("a"), IsEmpty()));
}

TEST(SavePlan, RefusesTwoTensorsOfOneName) {
  EXPECT_THROW(plan_save({list({{"a", 1}}), list({{"a", 2}})}), Error);
}

TEST(SavePlan, CutsARanksTensorsWhereAHeaderWouldBeTooLong) {
  std::vector<std::pair<std::string, int64_t>> tensors;
  for (int64_t i = 0; i < 1000; ++i) tensors.push_back({"tensor." + std::to_string(1000 + i), 1});
  const SavePlan plan = plan_save({list(tensors), "", list({{"a", 1}})});
  EXPECT_EQ(plan_shards(plan).size(), 2u);
  constexpr uint64_t kMost = 100'000;
  const std::vector<PlannedShard> shards = plan_shards(plan, kMost);
  ASSERT_GT(shards.size(), 3u);
  EXPECT_EQ(shards.back().rank, 2);
  std::vector<std::string> all;
  for (size_t i = 0; i + 1 < shards.size(); ++i) {
    EXPECT_EQ(shards[i].rank, 0);
    std::vector<SafetensorsEntry> entries = shards[i].entries;
    EXPECT_LT(emit_safetensors_header(entries, {}).size(), kMost);
    for (const SafetensorsEntry& entry : entries) all.push_back(entry.name);
  }
  EXPECT_EQ(all, names(plan)[0]);
}

TEST(CheckpointSize, IsAnUpperBoundThatIsNotFarOff) {
  const SavePlan plan = plan_save({list({{"a \"x\"", 1 << 20}, {"b", 5}, {"c.weight", 0}})});
  const CheckpointSize size = estimate_checkpoint(plan[0], 1);
  EXPECT_EQ(size.data_bytes, 4 * ((uint64_t{1} << 20) + 5));
  EXPECT_LT(size.manifest_bytes, uint64_t{4} << 20);
  EXPECT_LT(size.largest_header_bytes, uint64_t{4} << 20);
}

}  // namespace
}  // namespace shoal
