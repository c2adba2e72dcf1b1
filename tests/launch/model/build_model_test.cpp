#include "launch/model/build_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/data/recipe_source.h"
#include "sparse/sparse_model.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/ranks.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

/// Sequences of labelled tokens, each by itself.
class Sentences : public DataSource {
 public:
  DataShape shape() const override {
    return {.source = "sentences", .sequence = 6, .vocabulary = 9, .token_labels = 6};
  }
  std::unique_ptr<SampleSet> open(Split) const override { return nullptr; }
};

TEST(CheckStride, IsForWindowsOfAStream) {
  const auto problem = [](const Recipe& recipe, const DataSource& source) -> std::string {
    try {
      check_stride(recipe, source);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const auto with = [](const std::string& stride) {
    return testing::equality_recipe(testing::joined(testing::text_data(), {stride}));
  };
  const Recipe recipe = with("evaluate.stride=3"), coarse = with("evaluate.stride=7");
  EXPECT_EQ(problem(recipe, *make_source(recipe)), "");
  EXPECT_THAT(problem(coarse, *make_source(coarse)), HasSubstr("7 would leave tokens out"));
  EXPECT_THAT(problem(recipe, Sentences()), HasSubstr("data.source sentences are not windows"));
  EXPECT_EQ(problem(with("evaluate.every=1ep"), Sentences()), "");
}

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

}  // namespace
}  // namespace shoal
