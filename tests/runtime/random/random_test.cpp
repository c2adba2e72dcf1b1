#include "runtime/random/random.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace shoal {
namespace {

constexpr int64_t kCount = 1 << 20;
const Stream kStream{1, Purpose::kTest, 2, 3};

torch::Tensor moments(const torch::Tensor& values) {
  const torch::Tensor x = values.to(at::kDouble);
  const torch::Tensor centred = x - x.mean();
  const torch::Tensor deviation = centred.square().mean().sqrt();
  return torch::stack({x.mean(), deviation, (centred / deviation).pow(3).mean(),
                       (centred / deviation).pow(4).mean()});
}

class RandomOfType : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  torch::Tensor empty(at::IntArrayRef sizes) { return torch::empty(sizes, GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Types, RandomOfType, ::testing::Values(at::kFloat, at::kDouble));

// Five standard errors of the mean, deviation, skewness and kurtosis of kCount values.
constexpr double kError = 5.0 / 1024;

TEST_P(RandomOfType, UniformHasItsMoments) {
  const torch::Tensor values = empty({kCount});
  fill_uniform(values, kStream);
  const torch::Tensor found = moments(values);
  EXPECT_NEAR(found[0].item<double>(), 0.5, 0.29 * kError);
  EXPECT_NEAR(found[1].item<double>(), std::sqrt(1.0 / 12), 0.29 * kError);
  EXPECT_NEAR(found[2].item<double>(), 0, 2 * kError);
  EXPECT_NEAR(found[3].item<double>(), 1.8, 3 * kError);
  EXPECT_GT(values.min().item<double>(), 0.0);
  EXPECT_LT(values.max().item<double>(), 1.0);
}

TEST_P(RandomOfType, NormalHasItsMoments) {
  const torch::Tensor values = empty({kCount});
  fill_normal(values, kStream);
  const torch::Tensor found = moments(values);
  EXPECT_NEAR(found[0].item<double>(), 0, kError);
  EXPECT_NEAR(found[1].item<double>(), 1, 0.71 * kError);
  EXPECT_NEAR(found[2].item<double>(), 0, 2.5 * kError);
  EXPECT_NEAR(found[3].item<double>(), 3, 5 * kError);
  // The share beyond three deviations is 0.0026998.
  const double beyond = values.abs().gt(3).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(beyond, 0.0026998, 0.052 * kError);
}

TEST_P(RandomOfType, GumbelHasItsMoments) {
  const torch::Tensor values =
      gumbel_rows(kStream, torch::zeros({1}, at::kLong), kCount, GetParam())[0];
  const torch::Tensor found = moments(values);
  EXPECT_NEAR(found[0].item<double>(), std::numbers::egamma, 1.3 * kError);
  EXPECT_NEAR(found[1].item<double>(), std::numbers::pi / std::sqrt(6.0), 1.4 * kError);
  EXPECT_NEAR(found[2].item<double>(), 1.13955, 20 * kError);
}

TEST_P(RandomOfType, NeighbouringValuesAreUncorrelated) {
  const torch::Tensor values = empty({kCount});
  fill_normal(values, kStream);
  for (const int64_t lag : {1, 2, 3, 4}) {
    const torch::Tensor product = values.slice(0, lag) * values.slice(0, 0, kCount - lag);
    EXPECT_NEAR(product.mean().item<double>(), 0, kError) << lag;
  }
}

TEST_P(RandomOfType, AShorterFillIsAPrefixOfALongerOne) {
  const torch::Tensor whole = empty({1000});
  fill_normal(whole, kStream);
  for (const int64_t length : {0, 1, 2, 3, 5, 63, 64, 65, 127, 129, 999}) {
    const torch::Tensor part = empty({length});
    fill_normal(part, kStream);
    EXPECT_TRUE(part.equal(whole.slice(0, 0, length))) << length;
  }
}

TEST_P(RandomOfType, ThreadsDoNotChangeABit) {
  const int threads = at::get_num_threads();
  const torch::Tensor ids = torch::arange(30011);
  at::set_num_threads(1);
  const torch::Tensor fill_of_one = empty({100003});
  fill_normal(fill_of_one, kStream);
  const torch::Tensor rows_of_one = gumbel_rows(kStream, ids, 7, GetParam());
  at::set_num_threads(3);
  const torch::Tensor fill_of_three = empty({100003});
  fill_normal(fill_of_three, kStream);
  const torch::Tensor rows_of_three = gumbel_rows(kStream, ids, 7, GetParam());
  at::set_num_threads(threads);
  EXPECT_TRUE(fill_of_one.equal(fill_of_three));
  EXPECT_TRUE(rows_of_one.equal(rows_of_three));
}

TEST_P(RandomOfType, RowsDependOnTheirIdAloneHoweverRanksShareThem) {
  const torch::Tensor ids = torch::arange(1000) * 7919 - 3;
  const torch::Tensor whole = normal_rows(kStream, ids, 6, GetParam());
  EXPECT_EQ(whole.sizes(), (std::vector<int64_t>{1000, 6}));
  const torch::Tensor order = torch::arange(999, -1, -1);
  EXPECT_TRUE(normal_rows(kStream, ids.flip(0), 6, GetParam()).equal(whole.index_select(0, order)));
  for (const int64_t ranks : {2, 3, 7}) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const torch::Tensor own = ids.slice(0, rank, 1000, ranks);
      EXPECT_TRUE(
          normal_rows(kStream, own, 6, GetParam()).equal(whole.slice(0, rank, 1000, ranks)));
    }
  }
}

TEST_P(RandomOfType, AWiderRowBeginsWithTheNarrowOne) {
  const torch::Tensor ids = torch::arange(50);
  const torch::Tensor wide = uniform_rows(kStream, ids, 200, GetParam());
  for (const int64_t width : {0, 1, 3, 4, 5, 64, 65}) {
    EXPECT_TRUE(uniform_rows(kStream, ids, width, GetParam()).equal(wide.slice(1, 0, width)));
  }
}

TEST_P(RandomOfType, TheFillIsThePlainSequenceOfBlocks) {
  const torch::Tensor values = empty({10});
  fill_uniform(values, kStream);
  const torch::Tensor rows = uniform_rows(kStream, torch::zeros({1}, at::kLong), 10, GetParam());
  EXPECT_TRUE(values.equal(rows[0]));
}

TEST_P(RandomOfType, StridedTensorsGetTheSameLogicalValues) {
  const torch::Tensor straight = empty({5, 7});
  const torch::Tensor strided = empty({7, 5}).t();
  fill_normal(straight, kStream);
  fill_normal(strided, kStream);
  EXPECT_TRUE(straight.equal(strided));
}

TEST(Random, HalfPrecisionIsRoundedFloat) {
  const torch::Tensor single = torch::empty({100}, at::kFloat);
  const torch::Tensor half = torch::empty({100}, at::kBFloat16);
  fill_normal(single, kStream);
  fill_normal(half, kStream);
  EXPECT_TRUE(half.equal(single.to(at::kBFloat16)));
}

TEST(Random, DoubleIsNotWidenedFloat) {
  const torch::Tensor values = torch::empty({100}, at::kDouble);
  fill_uniform(values, kStream);
  EXPECT_FALSE(values.equal(values.to(at::kFloat).to(at::kDouble)));
}

TEST(Random, StepsAndLayersHaveTheirOwnNumbers) {
  const torch::Tensor ids = torch::arange(4);
  const torch::Tensor base = normal_rows(kStream, ids, 4, at::kFloat);
  Stream other = kStream;
  other.step += 1;
  EXPECT_FALSE(normal_rows(other, ids, 4, at::kFloat).equal(base));
  other = kStream;
  other.layer += 1;
  EXPECT_FALSE(normal_rows(other, ids, 4, at::kFloat).equal(base));
}

TEST(Random, ParametersThatRequireGradientsAreFilledWithoutAGraph) {
  const torch::Tensor values = torch::empty({4}).requires_grad_();
  fill_uniform(values, kStream);
  EXPECT_TRUE(values.is_leaf());
}

TEST(Random, RefusesIntegersAndWrongIds) {
  EXPECT_THROW(fill_uniform(torch::empty({4}, at::kLong), kStream), c10::Error);
  EXPECT_THROW(normal_rows(kStream, torch::zeros({2}), 4, at::kFloat), c10::Error);
  EXPECT_THROW(normal_rows(kStream, torch::zeros({2, 2}, at::kLong), 4, at::kFloat), c10::Error);
}

}  // namespace
}  // namespace shoal
