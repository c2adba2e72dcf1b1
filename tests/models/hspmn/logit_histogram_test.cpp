#include "models/hspmn/gate_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <vector>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::some_numbers;

torch::Tensor numbers(std::initializer_list<double> values) {
  return torch::tensor(std::vector<double>(values), torch::kFloat64);
}

torch::Tensor count_all(const torch::Tensor& logits) {
  return LogitHistogram::count(logits, torch::ones_like(logits, torch::kBool));
}

TEST(LogitHistogram, FindsQuantilesWithinABin) {
  const torch::Tensor logits = 5 * some_numbers({5000}, 1);
  const torch::Tensor sorted = std::get<0>(logits.sort());
  const torch::Tensor counts = count_all(logits);
  for (const double share : {0.01, 0.2, 0.5, 0.8, 0.999}) {
    const double exact = sorted[static_cast<int64_t>(share * 5000)].item<double>();
    EXPECT_NEAR(LogitHistogram::quantile(counts, share).item<double>(), exact, 0.05) << share;
  }
}

TEST(LogitHistogram, LeavesOutWhatDoesNotCountAndWhatIsNoNumber) {
  const torch::Tensor logits = numbers({1, 2, std::nan(""), 3, INFINITY});
  const torch::Tensor is_counted = torch::tensor({true, false, true, true, true});
  EXPECT_TRUE(LogitHistogram::count(logits, is_counted).equal(count_all(numbers({1, 3, 1e30}))));
}

TEST(LogitHistogram, CountsOfRanksAddUp) {
  const torch::Tensor logits = 5 * some_numbers({100}, 1);
  const torch::Tensor parts =
      count_all(logits.narrow(0, 0, 30)) + count_all(logits.narrow(0, 30, 70));
  EXPECT_TRUE(parts.equal(count_all(logits)));
}

TEST(LogitHistogram, TakesLogitsOutsideItsRange) {
  const torch::Tensor counts = count_all(numbers({-1e30, -20, 0, 20, 1e30}));
  EXPECT_EQ(counts.sum().item<double>(), 5);
  EXPECT_NEAR(LogitHistogram::quantile(counts, 0.3).item<double>(), -20, 0.2);
  EXPECT_GT(LogitHistogram::quantile(counts, 0.9).item<double>(), 1e5);
  EXPECT_LT(LogitHistogram::quantile(counts, 0.0).item<double>(), -1e5);
}

// Tokens of equal context have equal logits: no more than the wanted rate is above the threshold.
TEST(LogitHistogram, OfEqualLogitsAllAreBelowTheQuantile) {
  const torch::Tensor logits = torch::cat({torch::full({70}, 3.0), torch::full({30}, 5.0)});
  const torch::Tensor counts = count_all(logits);
  const double wide = LogitHistogram::quantile(counts, 0.5).item<double>();
  EXPECT_GT(wide, 3.0);
  EXPECT_LT(wide, 3.1);
  EXPECT_GT(LogitHistogram::quantile(counts, 0.75).item<double>(), 5.0);
}

TEST(LogitHistogram, KnowsNoQuantileOfNothing) {
  EXPECT_TRUE(
      std::isnan(LogitHistogram::quantile(count_all(torch::empty({0})), 0.5).item<double>()));
}

}  // namespace
}  // namespace shoal
