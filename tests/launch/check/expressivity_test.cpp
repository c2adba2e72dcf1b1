#include "launch/check/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "launch/check/check.h"
#include "runtime/base/error.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

SparseLayerInfo layer(const std::string& name, std::optional<int64_t> span) {
  return {name, 8, 4, 1, 0.5, 16, 0, span, 0};
}

// The example of the paper's appendix C.1.
TEST(Expressivity, ComparesMasksWithFreeAndPermutedOnes) {
  const std::vector<Expressivity> settings =
      expressivity_of({layer("stem.weight", 1), layer("blocks.0.mlp.fc1.weight", 2),
                       layer("blocks.1.mlp.fc1.weight", 2), layer("blocks.2.mlp.fc1.weight", 2)});
  ASSERT_EQ(settings.size(), 3u);
  const std::vector<double> expected{4330747, 50653, 983053};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(settings[i].bound.log10_regions, std::log10(expected[i]), 1e-9);
  }
  EXPECT_THROW(expressivity_of({layer("stem.weight", 1)}), ConfigError);
}

TEST(Expressivity, IsPrintedByCheck) {
  const testing::ScratchFolder scratch;
  const std::string path = scratch.file("r.yaml");
  testing::write_file(path, testing::kEqualityRecipe);
  std::ostringstream out;
  EXPECT_EQ(
      check({{path, {testing::vit(), "sparsity={density: 0.25, pattern: {name: diagonal}}"}, {}},
             1,
             false,
             true},
            out),
      ExitCode::kOk);
  EXPECT_THAT(out.str(), HasSubstr("these masks, permuted"));
}

}  // namespace
}  // namespace shoal
