#include "launch/data/recipe_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launch/step/session.h"
#include "sparse/sparse_model.h"
#include "sparse/training/chain_removal.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// The sparse layers of a recipe, and the chains among them.
class Chains {
 public:
  explicit Chains(const std::vector<std::string>& overrides)
      : recipe_(testing::equality_recipe(overrides)),
        data_(open_split(make_source(recipe_), Split::kTrain)),
        session_(recipe_, testing::model_on(recipe_, data_, grid_), data_, grid_),
        chains_(chain_layers(session_.model().sparse->masks().layers(),
                             session_.model().sparse->forms().permutations)) {}

  /// Layers of each chain, those that put the neurons out before the one that takes them in.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const LayerChain& chain : chains_) {
      std::string name;
      for (const LayerChain::Side& side : chain.sides) {
        name += (side.takes_in ? " -> " : " ") +
                session_.model().sparse->masks().layers()[side.layer].parameter.name;
      }
      names.push_back(name.substr(1));
    }
    return names;
  }
  const std::vector<LayerChain>& chains() const { return chains_; }

 private:
  RankGrid grid_ = testing::self_grid();
  Recipe recipe_;
  OpenSplit data_;
  Session session_;
  std::vector<LayerChain> chains_;
};

TEST(ChainLayers, FindsMlpsAndExperts) {
  EXPECT_THAT(Chains({"sparsity={density: 0.5, layers: [channel_mlp, moe_c.experts]}"}).names(),
              ElementsAre("backbone.blocks.0.channel_mlp.fc1.weight -> "
                          "backbone.blocks.0.channel_mlp.fc2.weight",
                          "backbone.blocks.1.moe_c.experts.*.fc1.weight -> "
                          "backbone.blocks.1.moe_c.experts.*.fc2.weight"));
}

TEST(ChainLayers, PutsAGateBesideFc1) {
  const std::string gated =
      "moe: {router: {name: top_k, k: 2}, experts: {kind: gated, count: 4, hidden: 6}}";
  EXPECT_THAT(
      Chains({testing::vit(gated), "sparsity={density: 0.5, layers: [moe.experts]}"}).names(),
      ElementsAre("backbone.blocks.1.moe.experts.*.fc1.weight "
                  "backbone.blocks.1.moe.experts.*.gate.weight -> "
                  "backbone.blocks.1.moe.experts.*.fc2.weight"));
}

TEST(ChainLayers, FindsNoneWhereOneSideIsDense) {
  EXPECT_THAT(Chains({testing::vit(), "sparsity={density: 0.5, layers: [attention.proj, mlp.fc2]}"})
                  .chains(),
              IsEmpty());
}

TEST(ChainLayers, KnowsThePermutationsThatReorderTheNeurons) {
  const auto permuted = [](const std::string& axis) {
    const Chains found({testing::vit(),
                        "sparsity={density: 0.5, layers: [blocks.0.mlp], "
                        "permutation: {name: learned, axis: " +
                            axis + "}}"});
    EXPECT_THAT(found.chains(), SizeIs(1));
    const std::vector<LayerChain::Side>& sides = found.chains()[0].sides;
    EXPECT_TRUE(found.chains()[0].is_soft());
    return std::pair{sides[0].permutation != nullptr, sides[1].permutation != nullptr};
  };
  EXPECT_EQ(permuted("column"), std::pair(false, true));
  EXPECT_EQ(permuted("row"), std::pair(true, false));
}

}  // namespace
}  // namespace shoal
