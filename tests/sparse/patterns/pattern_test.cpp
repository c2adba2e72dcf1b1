#include "sparse/patterns/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sparse/patterns/best_cells.h"
#include "tests/sparse/patterns/pattern_fixture.h"
#include "tests/support/config_error.h"

// m rows  n columns  C cells
namespace shoal {
namespace {

using testing::bools;
using testing::config_error_of;
using ::testing::HasSubstr;
using testing::make_pattern;
using testing::mask_of;
using testing::uniform_numbers;

torch::Tensor numbers(const std::vector<double>& values) { return torch::tensor(values); }

// RigL by hand, k = 2: w(0, 1) is dropped and regrown, w(1, 0) takes the place of w(1, 3).
TEST(Unstructured, DropsTheLowestAndGrowsTheHighest) {
  const auto pattern = make_pattern("{name: unstructured}", 2, 4, 0.625);
  EXPECT_EQ(pattern->num_on(), 5);
  CellUpdate update{bools({1, 1, 0, 0, 0, 1, 1, 1}), numbers({.5, .1, 0, 0, 0, .3, .8, .05}),
                    numbers({.2, .9, .4, .1, .7, .3, .6, 0}), 2, 2};
  EXPECT_TRUE(torch::equal(pattern->update(update), bools({1, 1, 0, 0, 1, 1, 1, 0})));
  update.excludes_dropped = true;
  EXPECT_TRUE(torch::equal(pattern->update(update), bools({1, 0, 1, 0, 1, 1, 1, 0})));
  // Three others are left, so that of the five dropped the best two come back.
  update.num_drop = update.num_grow = 5;
  EXPECT_TRUE(torch::equal(pattern->update(update), bools({0, 1, 1, 1, 1, 0, 1, 0})));
}

TEST(Unstructured, GrowsWhatThereIs) {
  const auto pattern = make_pattern("{name: unstructured}", 1, 3, 0.34);
  EXPECT_TRUE(torch::equal(
      pattern->update({bools({0, 1, 0}), numbers({0, 1, 0}), numbers({0, 0, 0}), 0, 9}),
      bools({1, 1, 1})));
}

TEST(Unstructured, TiesGoToTheLowerWeight) {
  const auto pattern = make_pattern("{name: unstructured}", 2, 3, 0.5);
  const torch::Tensor same = torch::ones({6});
  EXPECT_TRUE(torch::equal(pattern->update({bools({0, 1, 1, 1, 0, 0}), same, same, 1, 1}),
                           bools({1, 1, 1, 0, 0, 0})));
}

// Norms b00 = 1, b10 = .2, b11 = .9; of b01 = .5 and b10 = .4 the gradient of b01 is higher.
TEST(Block, UpdatesWholeBlocksByTheirNorm) {
  const auto pattern = make_pattern("{name: block, size: 2}", 4, 4, 0.75);
  EXPECT_EQ(pattern->num_cells(), 4);
  EXPECT_EQ(pattern->num_on(), 3);
  const torch::Tensor weight = torch::zeros({4, 4});
  weight[0][1] = -1.0, weight[2][0] = 0.12, weight[3][1] = -0.16, weight[3][3] = 0.9;
  EXPECT_TRUE(torch::allclose(pattern->pool(weight), numbers({1, 0, .2, .9}).to(torch::kFloat32)));
  const torch::Tensor mask =
      pattern->update({bools({1, 0, 1, 1}), pattern->pool(weight), numbers({0, .5, .4, 0}), 1, 1});
  EXPECT_TRUE(torch::equal(mask, bools({1, 1, 0, 1})));
  EXPECT_TRUE(torch::equal(pattern->expand(mask),
                           mask_of({{1, 1, 1, 1}, {1, 1, 1, 1}, {0, 0, 1, 1}, {0, 0, 1, 1}})));
}

// The lowest two weights of the matrix, .1 and .2 of the first row, are dropped; each group of four
// is filled up to two again.
TEST(NOfM, DropsOverTheMatrixAndRefillsGroups) {
  const auto pattern = make_pattern("{name: n_m, of: 4}", 2, 4, 0.5);
  EXPECT_EQ(pattern->num_on(), 4);
  const torch::Tensor on = bools({1, 1, 0, 0, 0, 0, 1, 1});
  const torch::Tensor size = numbers({.1, .2, 0, 0, 0, 0, .5, .3});
  const torch::Tensor grow = numbers({.4, .1, .3, .2, .9, .9, 0, 0});
  EXPECT_TRUE(
      torch::equal(pattern->update({on, size, grow, 2, 2}), bools({1, 0, 1, 0, 0, 0, 1, 1})));
  EXPECT_TRUE(
      torch::equal(pattern->update({on, size, grow, 3, 3}), bools({1, 0, 1, 0, 1, 0, 1, 0})));
}

TEST(NOfM, TheLastGroupOfARowMayBeShorter) {
  const auto pattern = make_pattern("{name: n_m, of: 4}", 2, 6, 0.75);
  EXPECT_EQ(pattern->num_on(), 2 * (3 + 2));
  const torch::Tensor mask = pattern->choose(uniform_numbers(12, 1)).view({2, 6}).to(torch::kInt64);
  EXPECT_TRUE(torch::equal(mask.narrow(1, 0, 4).sum(1), torch::full({2}, 3)));
  EXPECT_TRUE(torch::equal(mask.narrow(1, 4, 2).sum(1), torch::full({2}, 2)));
}

// Six of twelve weights, two a row. The drops are .1 and .2; the highest gradients are those of the
// first row, so that the last row has one salient weight. Without ablation each keeps two.
TEST(ConstantFanIn, KeepsAsManyOfEachRow) {
  const auto pattern = make_pattern("{name: constant_fan_in}", 3, 4, 0.5);
  const torch::Tensor on = bools({1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1});
  const torch::Tensor size = numbers({.9, .8, 0, 0, 0, .7, .2, 0, 0, 0, .6, .1});
  const torch::Tensor grow = numbers({0, 0, .9, .8, .3, 0, .1, .2, .4, .5, 0, .1});
  EXPECT_TRUE(torch::equal(pattern->update({on, size, grow, 2, 2}),
                           bools({1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0})));
}

// The same with ablation: the rows have 4, 1 and 1 salient weights. One row alone could not hold
// the six weights, so that of the other two the earlier stays as well, and both have three. Half of
// the mask's fan-in is less, one weight.
TEST(ConstantFanIn, AblatesNeuronsWithFewSalientWeights) {
  for (const char* share : {"2", "0.5, ablation_fan_in: dense"}) {
    const auto pattern = make_pattern(
        std::string("{name: constant_fan_in, ablate_below: ") + share + "}", 3, 4, 0.5);
    const torch::Tensor on = bools({1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1});
    const torch::Tensor size = numbers({.9, .8, 0, 0, 0, .7, .2, 0, 0, 0, .6, .1});
    const torch::Tensor grow = numbers({0, 0, .9, .8, .3, 0, .1, .2, .4, .5, 0, .1});
    EXPECT_TRUE(torch::equal(pattern->update({on, size, grow, 2, 2}),
                             bools({1, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0, 0})))
        << share;
  }
}

// 768 and 3072 are the widths of ViT-B.
TEST(Diagonal, HasAsManyDiagonalsAsTheDensityNeeds) {
  EXPECT_EQ(make_pattern("{name: diagonal}", 768, 768, 0.1)->num_on(), 77);
  EXPECT_EQ(make_pattern("{name: diagonal}", 3072, 768, 0.1)->num_on(), 308);
  EXPECT_EQ(make_pattern("{name: diagonal}", 1024, 1024, 0.05)->num_on(), 52);
  EXPECT_EQ(make_pattern("{name: diagonal}", 4096, 1024, 0.05)->num_on(), 205);
}

TEST(Diagonal, WrapsAroundTheLongerSide) {
  const auto square = make_pattern("{name: diagonal}", 4, 4, 0.25);
  EXPECT_TRUE(torch::equal(square->expand(bools({0, 1, 0, 0})),
                           mask_of({{0, 0, 0, 1}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}})));
  EXPECT_TRUE(
      torch::equal(square->expand(bools({0, 1, 0, 0})).t(), square->expand(bools({0, 0, 0, 1}))));
  const torch::Tensor tall =
      make_pattern("{name: diagonal}", 4, 2, 0.25)->expand(bools({0, 0, 0, 1}));
  EXPECT_TRUE(torch::equal(tall, mask_of({{0, 1}, {0, 0}, {0, 0}, {1, 0}})));
  EXPECT_TRUE(torch::equal(
      make_pattern("{name: diagonal}", 2, 4, 0.25)->expand(bools({0, 0, 0, 1})), tall.t()));
}

TEST(Diagonal, PoolsTheNormOfEach) {
  const auto pattern = make_pattern("{name: diagonal}", 2, 3, 0.4);
  const torch::Tensor x = torch::tensor({{3.0, 1.0, 0.0}, {-2.0, 4.0, 0.0}});
  // Offsets 0: (0,0) (1,1); 1: (0,1) (1,2); 2: (0,2) (1,0).
  EXPECT_TRUE(torch::allclose(pattern->pool(x), torch::tensor({5.0, 1.0, 2.0})));
}

TEST(Butterfly, ConnectsBlocksWhoseNumbersDifferInOneBit) {
  const auto pattern = make_pattern("{name: butterfly, grid: 8}", 8, 8, 0.375);
  EXPECT_FALSE(pattern->can_change());
  const torch::Tensor mask = pattern->choose(torch::zeros({64})).view({8, 8});
  EXPECT_TRUE(torch::equal(mask[5], bools({0, 0, 0, 0, 1, 1, 0, 1})));
  EXPECT_TRUE(torch::equal(mask[0], bools({1, 1, 1, 0, 0, 0, 0, 0})));
  EXPECT_EQ(pattern->num_on(), 24);
  const auto stretched = make_pattern("{name: butterfly, grid: 8}", 16, 8, 0.375);
  EXPECT_EQ(stretched->num_on(), 48);
  EXPECT_TRUE(torch::equal(stretched->choose(torch::zeros({128})).view({16, 8}),
                           mask.repeat_interleave(2, 0)));
}

TEST(Butterfly, LeavesAShareOfTheDensityToAProductOfLowRank) {
  // 1,024 of 64 x 64 weights; half of them are 512 = 4 x (64 + 64).
  const auto pattern = make_pattern("{name: butterfly, grid: 32, low_rank: 0.5}", 64, 64, 0.25);
  EXPECT_EQ(pattern->low_rank(), 4);
  EXPECT_EQ(pattern->num_on(), 512);  // four of 32 blocks in a row
  EXPECT_EQ(make_pattern("{name: butterfly, grid: 32}", 64, 64, 0.25)->low_rank(), 0);
}

TEST(Butterfly, TakesTheGridOfTheNearestDensity) {
  const auto weights = [](double density, int64_t rows, int64_t columns) {
    return make_pattern("{name: butterfly}", rows, columns, density)->num_on();
  };
  EXPECT_EQ(weights(0.1, 64, 64), 384);    // 3 / 32; a grid of 64 has 6 / 64 with more factors
  EXPECT_EQ(weights(0.25, 64, 64), 1024);  // 2 / 8 or 4 / 16
  EXPECT_EQ(weights(0.4, 64, 64), 1536);   // 3 / 8
  EXPECT_EQ(make_pattern("{name: butterfly, size: 16}", 64, 64, 0.6)->num_on(), 2048);  // 2 / 4
  EXPECT_EQ(weights(0.13, 64, 48), 384);  // 16 divides both: 2 / 16
  const torch::Tensor is_on = make_pattern("{name: butterfly}", 64, 64, 0.25)
                                  ->choose(torch::zeros({64 * 64}))
                                  .view({64, 64});
  EXPECT_EQ(is_on[0].nonzero().max().item<int64_t>(), 19);  // block 4 of 16
}

// Blocks of one weight would be 1 x 1; squares of 4 that one touches are on.
TEST(Butterfly, TouchedSquaresAreOnAsAWhole) {
  const auto pattern = make_pattern("{name: butterfly, grid: 8, size: 4}", 8, 8, 0.25);
  EXPECT_EQ(pattern->num_on(), 32);  // of neighbours alone: two squares
  EXPECT_EQ(make_pattern("{name: butterfly, grid: 8, size: 4}", 8, 8, 0.5)->num_on(), 64);
}

TEST(Banded, IsTheNarrowestOddBandOfTheDensity) {
  const auto pattern = make_pattern("{name: banded}", 4, 4, 0.5);
  EXPECT_TRUE(torch::equal(pattern->choose(torch::zeros({16})).view({4, 4}),
                           mask_of({{1, 1, 0, 0}, {1, 1, 1, 0}, {0, 1, 1, 1}, {0, 0, 1, 1}})));
  // Row r of the taller matrix has its middle at floor(r / 2).
  EXPECT_TRUE(torch::equal(
      make_pattern("{name: banded}", 4, 2, 0.5)->choose(torch::zeros({8})).view({4, 2}),
      mask_of({{1, 0}, {1, 0}, {0, 1}, {0, 1}})));
}

// Drops at (0, 0), (0, 1) and (2, 3) of a block of 4: only the first two share a row with half of
// its weights dropped. One block of 4 x 4 is extracted: the row group of all rows, where the
// columns of the largest weights are 1, 2, 3 and 4.
TEST(ShuffledBlock, HonoursDropsOfHalfARowOrColumn) {
  const auto pattern = make_pattern("{name: shuffled_block, size: 4}", 4, 8, 0.5);
  EXPECT_EQ(pattern->num_on(), 16);
  const torch::Tensor on = torch::zeros({4, 8}, torch::kBool);
  on.narrow(1, 0, 4).fill_(true);
  const torch::Tensor size = torch::zeros({4, 8});
  size.narrow(1, 0, 4).fill_(1.0);
  size[0][0] = 0.1, size[0][1] = 0.2, size[2][3] = 0.3;
  const torch::Tensor grow = torch::zeros({4, 8});
  grow[0][4] = 2.0, grow[1][4] = 1.5;
  // (2, 3) stays; (0, 4) and (1, 4) grow with the mean of the 14 kept, .95. Norms of the columns:
  // sqrt 3, sqrt 3, 2, sqrt 3.09, sqrt 1.805.
  const torch::Tensor mask =
      pattern->update({on.view({-1}), size.view({-1}), grow.view({-1}), 3, 3}).view({4, 8});
  EXPECT_TRUE(torch::equal(mask, on));
  // With larger weights to come the column of the growth replaces one of the others.
  size.select(1, 1).fill_(0.25);
  size[0][1] = 0.2;
  const torch::Tensor other =
      pattern->update({on.view({-1}), size.view({-1}), grow.view({-1}), 3, 3}).view({4, 8});
  EXPECT_TRUE(torch::equal(other[0], bools({1, 0, 1, 1, 1, 0, 0, 0}))) << other;
}

// Rows 0 and 2, and rows 1 and 3, have equal masks: two groups of two rows.
TEST(ShuffledBlock, GroupsSimilarRows) {
  const auto pattern = make_pattern("{name: shuffled_block, size: 2}", 4, 4, 0.5);
  const torch::Tensor score = torch::tensor(
      {{9.0, 0.1, 0.1, 9.0}, {0.1, 8.0, 8.0, 0.1}, {9.0, 0.1, 0.1, 9.0}, {0.1, 8.0, 8.0, 0.1}});
  EXPECT_TRUE(torch::equal(pattern->choose(score.view({-1})).view({4, 4}),
                           mask_of({{1, 0, 0, 1}, {0, 1, 1, 0}, {1, 0, 0, 1}, {0, 1, 1, 0}})));
}

TEST(Patterns, RefuseWhatDoesNotFitByLayer) {
  const auto error = [](const std::string& recipe, int64_t rows, int64_t columns, double density) {
    return config_error_of([&] { make_pattern(recipe, rows, columns, density); });
  };
  EXPECT_THAT(error("{name: unstructured}", 4, 4, 0.05),
              HasSubstr("fc: a density of 0.05 leaves none"));
  EXPECT_THAT(error("{name: block, size: 3}", 4, 6, 0.5),
              HasSubstr("fc: blocks of 3 x 3 do not divide 4 x 6 weights; sizes that do: 1, 2"));
  EXPECT_THAT(error("{name: shuffled_block, size: 3}", 6, 4, 0.5), HasSubstr("do not divide"));
  EXPECT_THAT(error("{name: constant_fan_in}", 8, 4, 0.2),
              HasSubstr("none of 4 weights of a neuron; raise sparsity.density to at least 0.25"));
  EXPECT_THAT(error("{name: n_m, of: 4}", 8, 4, 0.2), HasSubstr("leaves none of 4 cells"));
  // The least density is rounded up, so that it is taken.
  EXPECT_THAT(error("{name: n_m, of: 3}", 3, 3, 0.33), HasSubstr("at least 0.34,"));
  EXPECT_EQ(make_pattern("{name: n_m, of: 3}", 3, 3, 0.34)->num_weights(), 3);
  EXPECT_THAT(error("{name: unstructured}", 64, 192, 8.1e-5), HasSubstr("at least 8.2e-05,"));
  EXPECT_EQ(make_pattern("{name: unstructured}", 64, 192, 8.2e-5)->num_weights(), 1);
  EXPECT_THAT(error("{name: block, size: 2}", 3, 4, 0.5),
              HasSubstr("do not divide 3 x 4 weights; leave the layer out"));
  EXPECT_THAT(error("{name: butterfly, grid: 8}", 12, 8, 0.5), HasSubstr("a grid of 8 x 8"));
  EXPECT_THAT(error("{name: butterfly, grid: 6}", 12, 12, 0.5), HasSubstr("not a power of two"));
  EXPECT_THAT(error("{name: butterfly, grid: 8}", 8, 8, 0.2), HasSubstr("use a larger grid"));
  EXPECT_THAT(error("{name: butterfly}", 9, 8, 0.5), HasSubstr("no power of two divides 9 x 8"));
  EXPECT_THAT(error("{name: butterfly}", 64, 48, 0.1), HasSubstr("a butterfly of 16 blocks"));
  EXPECT_THAT(error("{name: butterfly, grid: 8, low_rank: 0.2}", 16, 16, 0.5),
              HasSubstr("low_rank: 0.2 of a density of 0.5 is 25 weights, and a product of rank 1 "
                        "has 32"));
  EXPECT_THAT(error("{name: butterfly, grid: 16, low_rank: 0.75}", 64, 64, 0.25),
              HasSubstr("less a product of rank 6"));
}

}  // namespace
}  // namespace shoal
