#include "launch/runs/curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace shoal {
namespace {

using ::testing::ElementsAre;

TEST(Curve, KeepsFewPointsAsTheyAre) {
  Curve curve("loss");
  curve.add(10, 3.0);
  curve.add(20, std::nan(""));
  curve.add(30, 1.0);
  EXPECT_TRUE(curve.is_whole());
  ASSERT_EQ(curve.buckets().size(), 3u);
  EXPECT_EQ(curve.buckets()[1].count, 0);
  EXPECT_EQ(curve.buckets()[2].mean(), 1.0);
  EXPECT_EQ(curve.num_finite(), 2);
  EXPECT_EQ(curve.num_not_finite(), 1);
  EXPECT_EQ(curve.first().step, 10);
  EXPECT_EQ(curve.last().value, 1.0);
  EXPECT_EQ(curve.highest().step, 10);
  EXPECT_EQ(curve.lowest().step, 30);
  EXPECT_FALSE(curve.is_constant());
  EXPECT_FALSE(curve.is_count());
}

TEST(Curve, JoinsManyPointsAndLosesNoExtreme) {
  Curve curve("loss");
  constexpr int64_t kPoints = 100'001;
  double sum = 0.0;
  for (int64_t i = 0; i < kPoints; ++i) {
    const double value = i == 77'777 ? 1e6 : i == 3 ? -5.0 : std::sin(static_cast<double>(i));
    sum += value;
    curve.add(static_cast<double>(i), value);
  }
  EXPECT_FALSE(curve.is_whole());
  EXPECT_LE(curve.buckets().size(), Curve::kMostBuckets);
  EXPECT_GT(curve.buckets().size(), Curve::kMostBuckets / 2);
  double total = 0.0, highest = 0.0, before = -1.0;
  int64_t count = 0;
  for (const Curve::Bucket& bucket : curve.buckets()) {
    EXPECT_EQ(bucket.first_step, before + 1);  // buckets follow each other
    before = bucket.last_step;
    total += bucket.sum;
    count += bucket.count;
    highest = std::max(highest, bucket.high);
  }
  EXPECT_EQ(before, kPoints - 1);
  EXPECT_EQ(count, kPoints);
  EXPECT_NEAR(total, sum, 1e-6);
  EXPECT_EQ(highest, 1e6);
  EXPECT_EQ(curve.highest().step, 77'777);
  EXPECT_EQ(curve.lowest().value, -5.0);
}

FlatRecord parsed(const std::string& line) {
  FlatRecord record;
  EXPECT_TRUE(record.parse(line)) << line;
  return record;
}

TEST(CurveSet, HasACurveForEachNumberWhateverItsName) {
  CurveSet set;
  set.add(parsed(R"({"step":1,"event":"x","a":1,"b":0.5})"));
  set.add(parsed(R"({"step":2,"b":0.25,"a":2,"new":7.0,"list":[1]})"));
  ASSERT_EQ(set.curves().size(), 3u);
  EXPECT_EQ(set.curves()[0].key(), "a");
  EXPECT_EQ(set.curves()[1].key(), "b");
  EXPECT_EQ(set.find("a")->last().value, 2);
  EXPECT_TRUE(set.find("a")->is_count());
  EXPECT_EQ(set.find("b")->last().value, 0.25);
  EXPECT_EQ(set.find("new")->first().step, 2);
  EXPECT_FALSE(set.find("new")->is_count());
  EXPECT_EQ(set.find("step"), nullptr);
  EXPECT_EQ(set.find("list"), nullptr);
}

TEST(CurveSet, ComputesTheShareOfTimeInExchanges) {
  CurveSet set;
  // 64 samples a step at 3200 a second: 20 ms a step, 5 of them waiting.
  set.add(parsed(R"({"step":10,"samples":640,"samples_per_second":3200.0,"all_to_all_ms":5.0})"));
  EXPECT_NEAR(set.find("all_to_all_share")->last().value, 0.25, 1e-12);
  // An interval in which an evaluation has waited, too.
  set.add(parsed(R"({"step":20,"samples":1280,"samples_per_second":3200.0,"all_to_all_ms":30.0})"));
  EXPECT_EQ(set.find("all_to_all_share")->last().step, 10);
  CurveSet without;
  without.add(parsed(R"({"step":10,"samples":640,"samples_per_second":3200.0})"));
  EXPECT_EQ(without.find("all_to_all_share"), nullptr);
}

TEST(ListHistory, AveragesNeighboursWhereThereAreMany) {
  ListHistory history;
  constexpr int64_t kLists = 5000;
  for (int64_t step = 1; step <= kLists; ++step) {
    history.add(step, {static_cast<double>(step), 1.0});
  }
  EXPECT_LE(history.columns().size(), ListHistory::kMostColumns);
  EXPECT_GT(history.columns().size(), ListHistory::kMostColumns / 2);
  double sum = 0.0;
  int64_t count = 0;
  for (const ListHistory::Column& column : history.columns()) {
    sum += column.sum[0];
    count += column.count;
    EXPECT_EQ(column.sum[1], static_cast<double>(column.count));
  }
  EXPECT_EQ(count, kLists);
  EXPECT_EQ(sum, kLists * (kLists + 1) / 2.0);
  EXPECT_EQ(history.columns().back().last_step, kLists);
}

TEST(ListHistory, TakesListsOfDifferentLengths) {
  ListHistory history;
  history.add(1, {1});
  history.add(2, {1, 2});
  ASSERT_EQ(history.columns().size(), 2u);
  EXPECT_THAT(history.columns()[1].sum, ElementsAre(1, 2));
}

}  // namespace
}  // namespace shoal
