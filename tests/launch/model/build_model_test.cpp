#include "launch/model/build_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "launch/data/recipe_source.h"
#include "runtime/base/error.h"
#include "sparse/sparse_model.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/ranks.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

TEST(BuildModel, TakesThePlanOfSparseLayersThatWasMadeOnMeta) {
  const Recipe recipe = testing::equality_recipe(
      {testing::vit(),
       "sparsity={density: 0.75, layers: [mlp], pattern: {name: butterfly, grid: 4, low_rank: "
       "0.3}, rule: {name: static}}"});
  const DataShape shape = make_source(recipe)->shape();
  const BuiltModel planned = build_model(recipe, shape);
  RankGrid grid = testing::self_grid();
  const BuiltModel built =
      build_model(recipe, shape, {&grid, torch::kCPU}, {}, &planned.sparse->plan());
  const std::vector<SparseLayer>&layers = built.sparse->layers(),
        &before = planned.sparse->layers();
  ASSERT_EQ(layers.size(), before.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    EXPECT_EQ(layers[l].parameter.name, before[l].parameter.name);
    EXPECT_EQ(layers[l].pattern, before[l].pattern);
    EXPECT_FALSE(layers[l].parameter.tensor.is_meta());
  }
  EXPECT_EQ(built.parameters.size(), planned.parameters.size());
}

TEST(CheckUnits, NamesAStageWithMoreUnitsThanAGpuRoutesTo) {
  const auto refusal = [](int64_t experts, c10::DeviceType device) -> std::string {
    const Recipe recipe = testing::equality_recipe(
        {"model.sparse.channel_moe.experts.count=" + std::to_string(experts)});
    const BuiltModel model = build_model(recipe, make_source(recipe)->shape());
    try {
      check_units(model.stages, device);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.code(), ExitCode::kTopology);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(6000, torch::kCUDA), "");
  EXPECT_EQ(refusal(6001, torch::kCPU), "");
  EXPECT_THAT(refusal(6001, torch::kCUDA),
              HasSubstr("blocks.1.moe_c: 6001 units, a GPU routes to at most 6000"));
}

}  // namespace
}  // namespace shoal
