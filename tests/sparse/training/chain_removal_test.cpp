#include "sparse/training/chain_removal.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "sparse/permutations/doubly_stochastic.h"
#include "tests/sparse/patterns/pattern_fixture.h"

// h neurons
namespace shoal {
namespace {

using testing::mask_of;
using testing::uniform_numbers;

// Neuron 1 has nothing that comes in, neuron 2 nothing that goes out.
TEST(RemoveChains, TakesNeuronsThatLeadNowhereOutOnBothSides) {
  const torch::Tensor fc1 = mask_of({{1, 0}, {0, 0}, {1, 1}, {0, 1}});
  const torch::Tensor fc2 = mask_of({{1, 1, 0, 0}, {0, 1, 0, 1}});
  remove_chains({{fc1, {}}, {fc2.t(), {}}});
  EXPECT_TRUE(torch::equal(fc1, mask_of({{1, 0}, {0, 0}, {0, 0}, {0, 1}})));
  EXPECT_TRUE(torch::equal(fc2, mask_of({{1, 0, 0, 0}, {0, 0, 0, 1}})));
}

TEST(RemoveChains, AGateFollowsLikeFc1) {
  const torch::Tensor gate = mask_of({{1}, {0}, {1}}), fc1 = mask_of({{1}, {1}, {1}});
  const torch::Tensor fc2 = mask_of({{1, 1, 0}});
  remove_chains({{fc1, {}}, {gate, {}}, {fc2.t(), {}}});
  EXPECT_TRUE(torch::equal(fc1, mask_of({{1}, {0}, {0}})));
  EXPECT_TRUE(torch::equal(gate, mask_of({{1}, {0}, {0}})));
  EXPECT_TRUE(torch::equal(fc2, mask_of({{1, 0, 0}})));
}

TEST(RemoveChains, LeavesAloneWhatMayNotChange) {
  const torch::Tensor fc1 = mask_of({{1}, {0}, {1}}), fc2 = mask_of({{1, 1, 0}});
  remove_chains({{fc1, {}, /*may_change=*/false}, {fc2.t(), {}}});
  EXPECT_TRUE(torch::equal(fc1, mask_of({{1}, {0}, {1}})));
  EXPECT_TRUE(torch::equal(fc2, mask_of({{1, 0, 0}})));
}

// Inputs of fc2 are read in the order 2, 0, 1: its column 0 is that of neuron 2.
TEST(RemoveChains, FollowAPermutationBetweenTheLayers) {
  const torch::Tensor fc1 = mask_of({{1}, {1}, {0}}), fc2 = mask_of({{1, 1, 0}});
  remove_chains({{fc1, {}}, {fc2.t(), /*row_of_h=*/torch::tensor({1, 2, 0})}});
  EXPECT_TRUE(torch::equal(fc1, mask_of({{1}, {0}, {0}})));
  EXPECT_TRUE(torch::equal(fc2, mask_of({{0, 1, 0}})));
}

std::shared_ptr<Permutation> random_order(const torch::Tensor& weight, PermutationAxis axis) {
  auto permutation = std::make_shared<Permutation>(
      Permutation::Place{{"fc.weight", weight, 0, {}, {}}, /*is_transposed=*/false, axis});
  permutation->shuffle(/*seed=*/3);
  return permutation;
}

// With the products that permuted layers really use every neuron ends with links on both sides, or
// with none.
TEST(RemoveChains, MakeThePermutedMatricesAgree) {
  const torch::Tensor weight1 = uniform_numbers(9 * 4, 1).view({9, 4});
  const torch::Tensor weight2 = uniform_numbers(5 * 9, 2).view({5, 9});
  const torch::Tensor fc1 = weight1 < 0.2, fc2 = weight2 < 0.2;
  LayerChain chain{{{0, false, random_order(weight1, PermutationAxis::kOutputs)},
                    {1, true, random_order(weight2, PermutationAxis::kInputs)}}};
  ASSERT_FALSE(chain.is_soft());
  const torch::Tensor before = torch::cat({fc1.view({-1}), fc2.view({-1})});
  remove_chains(
      {{fc1, row_of_neurons(chain.sides[0], 0)}, {fc2.t(), row_of_neurons(chain.sides[1], 0)}});
  const auto linked = [&](size_t side, const torch::Tensor& weight, const torch::Tensor& mask) {
    return chain.sides[side].permutation->apply(weight * mask).any(side == 0 ? 1 : 0);
  };
  const torch::Tensor comes_in_h = linked(0, weight1, fc1), goes_out_h = linked(1, weight2, fc2);
  EXPECT_TRUE(torch::equal(comes_in_h, goes_out_h));
  EXPECT_TRUE(comes_in_h.any().item<bool>());
  EXPECT_FALSE(torch::equal(torch::cat({fc1.view({-1}), fc2.view({-1})}), before));
}

TEST(LayerChain, IsSoftWhileAPermutationWithinItIs) {
  const torch::Tensor weight = uniform_numbers(12, 1).view({3, 4});
  const auto permutation = random_order(weight, PermutationAxis::kInputs);
  const LayerChain chain{{{0}, {1, true, permutation}}};
  EXPECT_FALSE(chain.is_soft());
  permutation->soften(/*groups=*/1, /*mix=*/0.5, /*seed=*/1, std::make_shared<DoublyStochastic>());
  EXPECT_TRUE(chain.is_soft());
}

}  // namespace
}  // namespace shoal
