#include "sparse/training/sparse_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "sparse/permutations/doubly_stochastic.h"
#include "tests/sparse/patterns/pattern_fixture.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<Permutation> permutation(const std::string& name) {
  const Parameter weight{name, torch::zeros({3, 4}, torch::kFloat64), 0, {}, {}};
  return std::make_shared<Permutation>(Permutation::Place{weight, false, PermutationAxis::kInputs});
}

TEST(SparseLog, HasALineForEachPermutationAndTheirMeans) {
  const auto moved = permutation("a.weight"), soft = permutation("b.weight");
  moved->set_index(torch::tensor({{1, 2, 3, 0}}));
  soft->soften(1, 0.5, 1, std::make_shared<DoublyStochastic>());
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

TEST(SparseLog, CountsSoftCellsAndHasTheirMeanDistance) {
  const auto equal_cells = [](const std::string& name) {
    const Parameter weight{name, torch::ones({4, 8}, torch::kFloat64), 0, {}, {}};
    return std::make_shared<SoftCells>(
        SparseLayer{weight, false, 0.25, testing::make_pattern("{name: diagonal}", 4, 8, 0.25)},
        /*temperature=*/1.0);
  };
  const auto soft = equal_cells("a.weight"), chosen = equal_cells("b.weight");
  chosen->harden();
  const SparseLog log({}, {soft, chosen});
  EXPECT_EQ(log.file(), "");
  const LayerLog::Report report = log.report(7, true);
  EXPECT_TRUE(report.records.empty());
  // 2 of 8 diagonals are kept, and each has a weight of 0.25: (2 * 0.75 + 6 * 0.25) / 2 = 1.5, and
  // 0 once chosen.
  EXPECT_EQ(report.means.to_json(), R"({"cells_soft":1,"cells_distance":0.75})");
}

}  // namespace
}  // namespace shoal
