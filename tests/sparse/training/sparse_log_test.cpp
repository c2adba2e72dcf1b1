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
  const SparseLog log({moved, soft}, {});
  EXPECT_EQ(log.file(), "permutations.jsonl");
  const LayerLog::Report report = log.report(7, true);
  ASSERT_EQ(report.records.size(), 2u);
  EXPECT_EQ(report.records[0].to_json(),
            R"({"step":7,"layer":"a.weight","soft":0,"distance":1.0,"penalty":0.0})");
  EXPECT_THAT(report.records[1].to_json(), HasSubstr(R"("soft":1)"));
  EXPECT_THAT(report.means.to_json(), HasSubstr(R"("permutation_soft":1)"));
  EXPECT_THAT(report.means.to_json(), HasSubstr(R"("permutation_penalty":0.5)"));
  const SparseLog none({}, {});
  EXPECT_EQ(none.file(), "");
  EXPECT_EQ(none.report(7, true).means.to_json(), "{}");
}

}  // namespace
}  // namespace shoal
