#include "parallel/checkpoint/save_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace shoal
