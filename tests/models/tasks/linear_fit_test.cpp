#include "models/tasks/linear_fit.h"

#include <gtest/gtest.h>

#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

// N rows  I inputs  O outputs
namespace shoal {
namespace {

using testing::apart;
using testing::some_numbers;

torch::Tensor known_map(const torch::Tensor& input_NI) {
  return input_NI.matmul(some_numbers({3, 2}, 8)) + torch::tensor({4.0, -0.5}, torch::kFloat64);
}

TEST(LinearFit, FindsAnAffineMap) {
  const torch::Tensor input_NI = some_numbers({50, 3}, 1);
  LinearFit fit(3, 2, torch::kCPU);
  for (const torch::Tensor& part_NI : input_NI.split(20)) fit.add(part_NI, known_map(part_NI));
  EXPECT_FALSE(fit.is_solved());
  fit.solve(*make_self_communicator());
  const torch::Tensor other_NI = some_numbers({4, 3}, 2);
  EXPECT_LT(apart(fit.predict(other_NI), known_map(other_NI)), 5e-4);
}

// Least squares by hand: slope cov(x, y) / var(x), through the means.
TEST(LinearFit, HasTheLeastSquaredError) {
  LinearFit fit(1, 1, torch::kCPU);
  fit.add(torch::tensor({0.0, 1.0, 2.0, 5.0}).view({4, 1}),
          torch::tensor({1.0, 1.0, 4.0, 6.0}).view({4, 1}));
  fit.solve(*make_self_communicator());
  const double slope = 15.0 / 14.0 / (1.0 + LinearFit::kRidge);  // means 2 and 3
  const torch::Tensor y = fit.predict(torch::tensor({2.0, 3.0}, torch::kFloat64).view({2, 1}));
  EXPECT_NEAR(y[0].item<double>(), 3.0, 1e-12);
  EXPECT_NEAR(y[1].item<double>(), 3.0 + slope, 1e-12);
}

TEST(LinearFit, TakesInputsThatDependOnEachOtherOrNeverChange) {
  const torch::Tensor x = some_numbers({30, 1}, 3);
  const torch::Tensor input_NI = torch::cat({x, 2 * x, torch::ones_like(x)}, 1);
  LinearFit fit(3, 1, torch::kCPU);
  fit.add(input_NI, 7 * x + 1);
  fit.solve(*make_self_communicator());
  EXPECT_LT(apart(fit.predict(input_NI), 7 * x + 1), 2e-3);

  LinearFit constant(2, 1, torch::kCPU);
  constant.add(torch::ones({3, 2}), torch::full({3, 1}, 0.25));
  constant.solve(*make_self_communicator());
  EXPECT_NEAR(constant.predict(torch::zeros({1, 2})).item<double>(), 0.25, 1e-12);
}

TEST(LinearFit, RefusesToSolveWithoutRowsAndToPredictUnsolved) {
  LinearFit fit(2, 2, torch::kCPU);
  EXPECT_THROW(fit.predict(torch::zeros({1, 2})), c10::Error);
  fit.add(torch::zeros({0, 2}), torch::zeros({0, 2}));
  EXPECT_THROW(fit.solve(*make_self_communicator()), c10::Error);
}

TEST(LinearFitRanks, FitTheRowsOfAll) {
  const torch::Tensor input_NI = some_numbers({1500, 3}, 4), output_NO = some_numbers({1500, 2}, 5);
  LinearFit whole(3, 2, torch::kCPU);
  whole.add(input_NI, output_NO);
  whole.solve(*make_self_communicator());
  const torch::Tensor other_NI = some_numbers({9, 3}, 6);
  const torch::Tensor expected = whole.predict(other_NI);
  testing::run_grid(3, 1, [&](RankGrid& grid) {
    LinearFit part(3, 2, torch::kCPU);
    const int64_t rank = grid.world->rank();
    if (rank == 0) part.add(input_NI.narrow(0, 0, 1200), output_NO.narrow(0, 0, 1200));
    if (rank == 2) part.add(input_NI.narrow(0, 1200, 300), output_NO.narrow(0, 1200, 300));
    part.solve(*grid.world);
    EXPECT_LT(apart(part.predict(other_NI), expected), 1e-12);
  });
}

}  // namespace
}  // namespace shoal
