#include "runtime/optim/gradients.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/random/random.h"

namespace shoal {
namespace {

Parameter with_gradient(std::string name, const torch::Tensor& gradient, int64_t stacked_dims = 0,
                        std::vector<int64_t> unit_ids = {}) {
  Parameter parameter{std::move(name),
                      torch::zeros_like(gradient).requires_grad_(),
                      stacked_dims,
                      std::move(unit_ids),
                      {}};
  parameter.tensor.mutable_grad() = gradient.clone();
  return parameter;
}

torch::Tensor gradient_noise(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  const torch::Tensor values = torch::empty(sizes, dtype);
  fill_normal(values, {.seed = 4});
  return values;
}

TEST(SquareSums, AreTakenInDoubleWhateverTheType) {
  const torch::Tensor large = gradient_noise({123457});
  const std::vector<Parameter> parameters = {with_gradient("large", large),
                                             with_gradient("none", torch::empty({0, 3})),
                                             with_gradient("small", torch::full({5}, 0.1f))};
  const torch::Tensor sums = square_sums(parameters);
  EXPECT_EQ(sums.scalar_type(), at::kDouble);
  const double expected = large.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(sums[0].item<double>() / expected, 1.0, 1e-14);
  EXPECT_EQ(sums[1].item<double>(), 0.0);
  const double tenth = 0.1f;
  EXPECT_NEAR(sums[2].item<double>(), 5 * tenth * tenth, 1e-16);
}

TEST(SquareSums, ThreadsDoNotChangeABit) {
  const std::vector<Parameter> parameters = {with_gradient("a", gradient_noise({300001})),
                                             with_gradient("b", gradient_noise({77}, at::kDouble))};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const torch::Tensor one = square_sums(parameters);
  at::set_num_threads(3);
  const torch::Tensor three = square_sums(parameters);
  at::set_num_threads(threads);
  EXPECT_TRUE(one.equal(three));
}

TEST(SquareSums, AreNonFiniteOnlyForTheParameterThatIs) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    torch::Tensor broken = gradient_noise({100});
    broken[57] = bad;
    const torch::Tensor sums =
        square_sums({with_gradient("fine", torch::full({9}, 3e38f)), with_gradient("bad", broken)});
    EXPECT_TRUE(std::isfinite(sums[0].item<double>()));
    EXPECT_FALSE(std::isfinite(sums[1].item<double>()));
  }
}

TEST(SquareSums, NameAParameterWithoutGradient) {
  Parameter parameter = with_gradient("fc.weight", gradient_noise({3}));
  parameter.tensor.mutable_grad() = torch::Tensor();
  EXPECT_THROW(square_sums({parameter}), c10::Error);
}

TEST(SquareSums, OfNothingAreEmpty) { EXPECT_EQ(square_sums({}).numel(), 0); }

TEST(FindNonfinite, NamesTheUnitOfAStack) {
  torch::Tensor stacked = gradient_noise({3, 2, 2});
  stacked[2][0][1] = NAN;
  const Parameter fine = with_gradient("fc.weight", gradient_noise({4}));
  const Parameter bad = with_gradient("experts.*.fc1.weight", stacked, 1, {8, 9, 17});
  EXPECT_EQ(find_nonfinite(bad), "experts.17.fc1.weight");
  EXPECT_EQ(find_nonfinite(fine), std::nullopt);
  EXPECT_EQ(find_nonfinite(with_gradient("whole", stacked)), "whole");
}

}  // namespace
}  // namespace shoal
