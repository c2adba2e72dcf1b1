#include "launch/weights/taken_sparse_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sparse/sparse_model.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/session_in_training.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::joined;
using ::testing::Not;
using Overrides = std::vector<std::string>;

/// With what it has of permutations.
struct PermutedTraining : testing::SessionInTraining {
  using SessionInTraining::SessionInTraining;

  /// Returns the checkpoint's path.
  std::string save(const std::string& folder) { return testing::save(*this, folder); }
  std::string load() { return load_initial_weights(session, recipe); }

  const Permutation& permutation_of(const std::string& weight) const {
    const auto& all = session.model().sparse->forms().permutations;
    return **std::ranges::find_if(all, [&](const auto& one) { return one->name() == weight; });
  }
  /// The order of a weight's inputs, of a stack of experts those of all.
  torch::Tensor order_of(const std::string& weight) const { return permutation_of(weight).index(); }
};

/// A dense layer and experts whose inputs are in another order.
Overrides permuted(const std::string& permutation, const Overrides& more = {}) {
  return joined({testing::kSmallExperts,
                 "sparsity={density: 0.5, rule: {name: static}, layers: [channel_mlp.fc1, "
                 "moe_c.experts], permutation: {name: " +
                     permutation + "}}"},
                more);
}

const std::string kPermutedLayer = "backbone.blocks.0.channel_mlp.fc1.weight",
                  kPermutedStack = "backbone.blocks.1.moe_c.experts.*.fc1.weight";

TEST(TakenPermutations, GoWithTheirWeights) {
  for (const std::string name : {"random", "learned, until: 20%", "benes, near: random"}) {
    const testing::ScratchFolder scratch;
    PermutedTraining trained(permuted(name));
    for (int step = 0; step < 2; ++step) trained.session.step({});
    const std::string path = trained.save(scratch.path());
    const auto with = [&](const std::string& take) {
      return permuted(name, {"run.seed=7", "model.init_from={from: " + path + ", " + take + "}"});
    };
    PermutedTraining all(with("take: ['backbone.*']"));
    if (name == "random") {
      EXPECT_FALSE(all.order_of(kPermutedStack).equal(trained.order_of(kPermutedStack)));
    }
    const std::string report = all.load();
    EXPECT_THAT(report, Not(HasSubstr("sparsity."))) << "no weights";
    for (const std::string& weight : {kPermutedLayer, kPermutedStack}) {
      const Permutation &mine = all.permutation_of(weight),
                        &theirs = trained.permutation_of(weight);
      ASSERT_EQ(mine.is_soft(), theirs.is_soft()) << name << " of " << weight;
      EXPECT_TRUE(mine.index().equal(theirs.index())) << name << " of " << weight;
      EXPECT_TRUE(!mine.is_soft() || mine.soft().equal(theirs.soft())) << name << " of " << weight;
    }
    EXPECT_TRUE(all.session.step({}).applied);

    PermutedTraining some(with("take: ['*.moe_c.*']"));
    const torch::Tensor before = some.order_of(kPermutedLayer);
    some.load();
    EXPECT_TRUE(some.order_of(kPermutedLayer).equal(before)) << "its weight is not taken";
    EXPECT_TRUE(some.order_of(kPermutedStack).equal(trained.order_of(kPermutedStack))) << name;
  }
}

TEST(TakenPermutations, AreFoundUnderOtherNames) {
  const testing::ScratchFolder scratch;
  const std::string sparsity =
      "sparsity={density: 0.5, rule: {name: static}, layers: [mlp], permutation: {name: random}}";
  const std::string first = "backbone.blocks.0.mlp.fc1.weight",
                    second = "backbone.blocks.1.mlp.fc1.weight";
  PermutedTraining trained({testing::vit(), sparsity});
  const std::string path = trained.save(scratch.path());
  PermutedTraining run({testing::vit(), sparsity, "run.seed=7",
                        "model.init_from={from: " + path +
                            ", take: ['backbone.blocks.0.*'], rename: {backbone.blocks.0.: "
                            "backbone.blocks.1.}}"});
  const torch::Tensor before = run.order_of(first);
  run.load();
  const auto mask = [](PermutedTraining& of, const std::string& weight) {
    const SparseMasks& sparse = of.session.model().sparse->masks();
    const auto found = std::ranges::find(sparse.layers(), weight,
                                         [](const auto& layer) { return layer.parameter.name; });
    return sparse.mask(static_cast<size_t>(found - sparse.layers().begin()));
  };
  EXPECT_TRUE(mask(run, second).equal(mask(trained, first)));
  EXPECT_FALSE(mask(run, first).equal(mask(trained, first)));
  EXPECT_TRUE(run.order_of(second).equal(trained.order_of(first)));
  EXPECT_FALSE(run.order_of(second).equal(trained.order_of(second)));
  EXPECT_TRUE(run.order_of(first).equal(before));
}

TEST(TakenPermutations, AreNotLeftBehind) {
  const testing::ScratchFolder scratch;
  PermutedTraining trained(permuted("random"));
  const std::string path = trained.save(scratch.path());
  const auto error = [&](const std::string& permutation, const std::string& take) {
    PermutedTraining run(
        permuted(permutation, {"model.init_from={from: " + path + ", take: " + take + "}"}));
    try {
      run.load();
    } catch (const Error& refusal) {
      EXPECT_EQ(refusal.code(), ExitCode::kMismatch);
      return std::string(refusal.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(error("none", "['*.moe_c.*']"),
              HasSubstr("moe_c.experts.0.fc1.weight is permuted, the recipe's is not"));
  EXPECT_THAT(error("random", "['*.experts.0.*', '*.experts.3.*']"),
              HasSubstr("moe_c.experts.1.fc1.weight would keep its random values and its order"));
  EXPECT_EQ(error("none", "['*.norm.weight']"), "taken");
  EXPECT_EQ(error("random", "['*.experts.*']"), "taken");
}

}  // namespace
}  // namespace shoal
