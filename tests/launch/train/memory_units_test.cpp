#include "launch/train/memory_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/model/build_model.h"
#include "tests/support/equality_recipe.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

MemoryUnits units_of(const std::vector<std::string>& overrides) {
  const Recipe recipe = testing::equality_recipe(overrides);
  return count_memory_units(
      build_model(recipe, make_source(recipe)->shape(), nullptr, torch::kMeta).stages);
}

TEST(MemoryUnits, OfExpertsAreNone) { EXPECT_THAT(units_of({}), IsEmpty()); }

TEST(MemoryUnits, OfALayerOfMemoryUnitsAreAllItsUnits) {
  EXPECT_THAT(
      units_of({"model.sparse.channel_moe.experts={kind: memory, count: 5, keys: 7, k: 2}"}),
      ElementsAre(Pair("blocks.1.moe_c", 5)));
}

TEST(MemoryUnits, OfANexusLayerAreThoseThatAreNoExperts) {
  const MemoryUnits units = units_of({testing::vit(testing::kBlockNexus)});
  EXPECT_FALSE(units.empty());
  for (const auto& [layer, count] : units) EXPECT_EQ(count, 2) << layer;
}

}  // namespace
}  // namespace shoal
