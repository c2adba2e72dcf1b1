#include "sparse/training/sparse_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<Permutation> permutation(const std::string& name) {
  const Parameter weight{name, torch::zeros({3, 4}, torch::kFloat64), 0, {}, {}};
  return std::make_shared<Permutation>(Permutation::Place{weight, false, PermutationAxis::kInputs});
}

TEST(PermutationMetrics, AreMeansOverTheLayers) {
  const auto moved = permutation("a.weight"), soft = permutation("b.weight");
  moved->set_index(torch::tensor({{1, 2, 3, 0}}));
  soft->soften(1, 0.5, 1);
  soft->soft().detach().fill_(0.25);
  const std::vector<PermutationReport> reports = permutation_reports({moved, soft});
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_FALSE(reports[0].is_soft);
  EXPECT_EQ(reports[0].distance, 1.0);
  EXPECT_EQ(reports[0].penalty, 0.0);
  EXPECT_TRUE(reports[1].is_soft);
  EXPECT_NEAR(reports[1].penalty, 1.0, 1e-12);
  MetricsRecord record;
  add_permutation_metrics(reports, record);
  EXPECT_THAT(record.to_json(), HasSubstr(R"("permutation_soft":1)"));
  EXPECT_THAT(record.to_json(), HasSubstr(R"("permutation_penalty":0.5)"));
  MetricsRecord none;
  add_permutation_metrics({}, none);
  EXPECT_EQ(none.to_json(), "{}");
}

}  // namespace
}  // namespace shoal
