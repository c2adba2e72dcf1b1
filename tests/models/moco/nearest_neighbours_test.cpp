#include "models/moco/nearest_neighbours.h"

#include <gtest/gtest.h>

#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

using torch::Tensor;

Tensor points(std::initializer_list<std::initializer_list<double>> rows) {
  std::vector<Tensor> all;
  for (const auto& row : rows)
    all.push_back(torch::tensor(std::vector<double>(row), torch::kFloat64));
  return torch::stack(all);
}

const Tensor& references() {
  static const Tensor rows = points({{1, 0}, {2, 0.2}, {0, 3}, {-1, 0}});
  return rows;
}
const Tensor kLabels = torch::tensor({2, 0, 1, 1}, torch::kInt64);

Tensor classes(int64_t neighbours, double temperature, const Tensor& samples) {
  const auto alone = make_self_communicator();
  NearestNeighbours model(neighbours, temperature);
  model.add(references(), kLabels, *alone);
  return model.classify(samples);
}

// Cosines of (3, 0) with the references: 1, .995, 0, -1.
TEST(NearestNeighbours, VoteByTheirCosines) {
  const Tensor sample = points({{3, 0}});
  EXPECT_EQ(classes(1, 0.07, sample).item<int64_t>(), 2);
  EXPECT_EQ(classes(2, 0.07, sample).item<int64_t>(), 2);
  EXPECT_EQ(classes(99, 0.07, sample).item<int64_t>(), 2) << "no more than there are";
  EXPECT_EQ(classes(4, 1e-4, sample).item<int64_t>(), 2) << "votes that no double has";
  // Nearly equal votes: class 1 has two of them.
  EXPECT_EQ(classes(4, 1e6, sample).item<int64_t>(), 1);
}

TEST(NearestNeighbours, OfEqualOnesTheFirstCounts) {
  const auto alone = make_self_communicator();
  NearestNeighbours model(1, 0.07);
  model.add(points({{1, 1}, {2, 2}}), torch::tensor({1, 0}, torch::kInt64), *alone);
  EXPECT_EQ(model.classify(points({{5, 5}})).item<int64_t>(), 1);
  model.clear();
  EXPECT_EQ(model.size(), 0);
}

TEST(NearestNeighbours, LeaveTheSampleItselfOut) {
  const auto alone = make_self_communicator();
  NearestNeighbours model(1, 0.07);
  model.add(references(), kLabels, *alone);
  EXPECT_TRUE(model.classify(references()).equal(kLabels));
  const Tensor own = torch::tensor({0, 1, 2, -1}, torch::kInt64);
  EXPECT_TRUE(model.classify(references(), own).equal(torch::tensor({0, 2, 0, 1}, torch::kInt64)));
  NearestNeighbours all(99, 0.07);
  all.add(references(), kLabels, *alone);
  EXPECT_EQ(all.classify(references(), own)[0].item<int64_t>(), 0);
}

TEST(NearestNeighboursRanks, AreThoseOfAll) {
  const Tensor samples = points({{3, 0}, {0.1, 1}, {-1, 0.1}});
  const Tensor expected = classes(2, 0.07, samples);
  testing::run_ranks(3, [&](Communicator& world) {
    const std::vector<int64_t> begin{0, 3, 3, 4};
    const auto rank = static_cast<size_t>(world.rank());
    const int64_t count = begin[rank + 1] - begin[rank];
    NearestNeighbours model(2, 0.07);
    model.add(references().narrow(0, begin[rank], count), kLabels.narrow(0, begin[rank], count),
              world);
    EXPECT_EQ(model.size(), 4);
    EXPECT_TRUE(model.classify(samples).equal(expected));
  });
}

}  // namespace
}  // namespace shoal
