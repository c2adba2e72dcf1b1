#include "runtime/data/loader/data_order.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace shoal {
namespace {

TEST(SamplesOfRank, SpreadsGroupsWholeContiguousAndEven) {
  for (int64_t world = 1; world <= 9; ++world) {
    for (int64_t groups = 0; groups <= 40; ++groups) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < world; ++rank) {
        const SampleRange mine = samples_of_rank({0, groups}, /*group=*/1, rank, world);
        EXPECT_EQ(mine.first, next);
        EXPECT_GE(mine.count, groups / world);
        EXPECT_LE(mine.count, (groups + world - 1) / world);
        next += mine.count;
      }
      EXPECT_EQ(next, groups) << groups << " groups over " << world;
    }
  }
}

TEST(SamplesOfRank, FollowsTheDocumentedBounds) {
  EXPECT_EQ(samples_of_rank({0, 4}, 1, 0, 3), (SampleRange{0, 1}));
  EXPECT_EQ(samples_of_rank({0, 4}, 1, 1, 3), (SampleRange{1, 1}));
  EXPECT_EQ(samples_of_rank({0, 4}, 1, 2, 3), (SampleRange{2, 2}));
  EXPECT_EQ(samples_of_rank({0, 2}, 1, 0, 3), (SampleRange{0, 0}));
}

TEST(SamplesOfRank, GivesWholeGroupsButForTheLastOfAll) {
  const SampleRange micro{100, 21};  // groups of 8, 8, 5
  EXPECT_EQ(samples_of_rank(micro, 8, 0, 1), (SampleRange{100, 21}));
  EXPECT_EQ(samples_of_rank(micro, 8, 0, 2), (SampleRange{100, 8}));
  EXPECT_EQ(samples_of_rank(micro, 8, 1, 2), (SampleRange{108, 13}));
  EXPECT_EQ(samples_of_rank(micro, 8, 3, 4), (SampleRange{116, 5}));
  EXPECT_EQ(samples_of_rank(micro, 8, 0, 4).count, 0);
}

TEST(SamplesOfRank, HasNothingOfAnEmptyMicroStep) {
  for (int64_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(samples_of_rank({40, 0}, 8, rank, 3), (SampleRange{40, 0}));
  }
}

TEST(DataOrder, VisitsEachSampleOnceAnEpoch) {
  const DataOrder order(7, 103, true);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 103; ++i) seen.insert(order.sample_at(epoch * 103 + i));
    EXPECT_EQ(seen.size(), 103u);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), 102);
  }
}

std::vector<int64_t> samples(const DataOrder& order, int64_t first, int64_t count) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < count; ++i) result.push_back(order.sample_at(first + i));
  return result;
}

TEST(DataOrder, DiffersByEpochAndSeed) {
  const DataOrder order(7, 100, true);
  EXPECT_NE(samples(order, 0, 100), samples(order, 100, 100));
  EXPECT_NE(samples(order, 0, 100), samples(DataOrder(8, 100, true), 0, 100));
  EXPECT_EQ(samples(order, 0, 300), samples(DataOrder(7, 100, true), 0, 300));
}

TEST(DataOrder, IsIndependentOfTheOrderOfQuestions) {
  const DataOrder order(7, 50, true);
  const int64_t late = order.sample_at(1234);
  order.sample_at(3);
  EXPECT_EQ(order.sample_at(1234), late);
}

TEST(DataOrder, KeepsTheSetsOwnOrderWithoutShuffling) {
  EXPECT_EQ(samples(DataOrder(7, 4, false), 2, 5), (std::vector<int64_t>{2, 3, 0, 1, 2}));
}

TEST(DataOrder, WorksForASingleSample) {
  EXPECT_EQ(samples(DataOrder(7, 1, true), 0, 3), (std::vector<int64_t>{0, 0, 0}));
}

}  // namespace
}  // namespace shoal
