#include "launch/inspect/sparsity_history.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

torch::Tensor mask(std::initializer_list<int> values, int64_t rows) {
  return torch::tensor(std::vector<int64_t>(values.begin(), values.end())).view({rows, -1}) != 0;
}

TEST(MaskNumbers, CountRowsInputsAndChanges) {
  const torch::Tensor before = mask({1, 0, 0, 0,  //
                                     1, 1, 0, 0,  //
                                     0, 0, 0, 0},
                                    3);
  const torch::Tensor now = mask({1, 0, 0, 1,  //
                                  1, 0, 0, 1,  //
                                  0, 0, 0, 0},
                                 3);
  const MaskNumbers first = mask_numbers(before, {});
  EXPECT_EQ(first.weights, 3);
  EXPECT_EQ(first.density, 0.25);
  EXPECT_FALSE(first.changed);
  EXPECT_EQ(first.empty_rows, 1);
  EXPECT_EQ(first.least_fan_out, 0);
  EXPECT_EQ(first.median_fan_out, 0.5);  // of 0, 0, 1 and 2
  EXPECT_EQ(first.most_fan_out, 2);
  EXPECT_EQ(mask_numbers(now, before).changed, 0.5);  // 2 of 4 are new
  EXPECT_EQ(mask_numbers(now, now).changed, 0.0);
  EXPECT_FALSE(mask_numbers(torch::zeros_like(now), before).changed);
}

TEST(Shrink, KeepsSmallMatricesAndAveragesLargeOnes) {
  torch::Tensor small = torch::zeros({2, 3});
  small[1][2] = 0.5;
  EXPECT_THAT(shrink(small, 3).mean, ElementsAre(0, 0, 0, 0, 0, 0.5));
  // 5 x 10 by squares of 3 x 3, which are cut at the end.
  torch::Tensor large = torch::zeros({5, 10}, torch::kBool);
  large.select(1, 0).fill_(true);
  large[4][9] = true;
  const ShrunkMatrix shrunk = shrink(large, 4);
  EXPECT_EQ(shrunk.height, 2);
  EXPECT_EQ(shrunk.width, 4);
  EXPECT_THAT(shrunk.mean, ElementsAre(3.0 / 9, 0, 0, 0, 2.0 / 6, 0, 0, 1.0 / 2));
  torch::Tensor thin = torch::zeros({1, 1000});
  thin[0][999] = 1;
  EXPECT_EQ(shrink(thin, 10).height, 1);
  EXPECT_EQ(shrink(thin, 10).mean.back(), 0.01);
}

TEST(Shrink, TakesRowsOfValuesForTheMatrix) {
  const torch::Tensor m_Gss = torch::arange(27, torch::kFloat64).view({3, 3, 3}) / 7;
  const torch::Tensor first_m = torch::tensor({0, 0, 0, 3, 3, 3, 6, 6, 6}, torch::kInt64);
  const torch::Tensor index_m = torch::tensor({4, 0, 8, 1, 5, 2, 7, 3, 6}, torch::kInt64);
  for (const int64_t most : {2, 4, 9}) {
    EXPECT_EQ(shrink(m_Gss.reshape({9, 3}), most, first_m).mean,
              shrink(torch::block_diag(m_Gss.unbind()), most).mean);
    EXPECT_EQ(shrink(torch::ones({9, 1}), most, index_m).mean,
              shrink(torch::eye(9).index_select(0, index_m), most).mean);
  }
}

TEST(Shrink, MakesNoMatrixOfRowsOfValues) {
  const int64_t m = int64_t{1} << 20;  // the matrix would take a TiB, as bool
  const ShrunkMatrix shrunk =
      shrink(torch::ones({m, 1}), kMostDrawnSide, torch::arange(m - 1, -1, -1));
  EXPECT_EQ(shrunk.width, kMostDrawnSide);
  EXPECT_GT(shrunk.mean[kMostDrawnSide - 1], 0.0);
  EXPECT_EQ(shrunk.mean[0], 0.0);
}

TEST(SparsityHistory, DrawsTheFirstTheLastAndSomeBetween) {
  std::vector<size_t> drawn;
  for (size_t i = 0; i < 21; ++i) {
    if (is_checkpoint_drawn(i, 21)) drawn.push_back(i);
  }
  EXPECT_THAT(drawn, ElementsAre(0, 4, 8, 12, 16, 20));
  for (size_t i = 0; i < kMostDrawnCheckpoints; ++i) {
    EXPECT_TRUE(is_checkpoint_drawn(i, kMostDrawnCheckpoints));
  }
}

class PermutationCurvesTest : public ::testing::Test {
 protected:
  const CurveSet& curves(const std::string& text) {
    testing::write_file(file_, text);
    history_ = {"diagonal", "learned", {1, 20}, {{"a.weight"}, {"b.weight"}}};
    add_permutation_curves(file_, history_);
    return history_.layers[1].curves;
  }
  testing::ScratchFolder scratch_;
  std::string file_ = scratch_.file("permutations.jsonl");
  SparsityHistory history_;
};

std::string line(int step, const std::string& layer, int soft, double distance, double penalty) {
  return fmt::format(
      "{{\"step\":{},\"layer\":\"{}\",\"soft\":{},\"distance\":{},\"penalty\":{}}}\n", step, layer,
      soft, distance, penalty);
}

TEST_F(PermutationCurvesTest, AreThoseOfTheLayerUpToTheLastCheckpoint) {
  const CurveSet& read =
      curves(line(10, "a.weight", 1, 0.1, 0.9) + line(10, "b.weight", 1, 0.5, 0.5) +
             line(20, "b.weight", 0, 0.75, 0) + line(30, "b.weight", 0, 0.75, 0) + "{\"step\": 4");
  const Curve &distance = *read.find("distance"), &penalty = *read.find("penalty");
  EXPECT_EQ(distance.num_finite(), 2);
  EXPECT_EQ(penalty.first().step, 10);
  EXPECT_EQ(penalty.last().step, 20);
  EXPECT_EQ(distance.first().value, 0.5);
  EXPECT_EQ(distance.last().value, 0.75);
  EXPECT_EQ(penalty.first().value, 0.5);
  EXPECT_EQ(penalty.last().value, 0.0);
  EXPECT_EQ(read.find("soft")->lowest().step, 20);
  EXPECT_EQ(history_.layers[0].curves.find("soft")->lowest().value, 1);
}

TEST_F(PermutationCurvesTest, ALineThatIsNoRecordIsNamed) {
  try {
    curves(line(1, "b.weight", 1, 0.5, 0.5) + "nonsense\n");
    ADD_FAILURE();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("permutations.jsonl:2: not a record"));
  }
  SparsityHistory history = history_;
  history.layers[1].curves = {};
  add_permutation_curves(scratch_.file("none"), history);
  EXPECT_TRUE(history.layers[1].curves.curves().empty());
}

}  // namespace
}  // namespace shoal
