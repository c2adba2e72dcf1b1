#include "launch/report/axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

std::vector<std::string> labels(const Axis& axis, int wanted = 4) {
  std::vector<std::string> result;
  for (const ScaleTick& tick : axis.ticks(wanted)) result.push_back(tick.label);
  return result;
}

TEST(Axis, HasRoundNumbers) {
  EXPECT_THAT(labels({0, 2.36, Quantity::kPlain}), ElementsAre("0", "1", "2"));
  EXPECT_THAT(labels({0, 0.00298, Quantity::kPlain}), ElementsAre("0", "0.001", "0.002"));
  EXPECT_THAT(labels({0, 4000, Quantity::kPlain}),
              ElementsAre("0", "1,000", "2,000", "3,000", "4,000"));
  EXPECT_THAT(labels({0, 100'000, Quantity::kPlain}), ElementsAre("0", "50k", "100k"));
  EXPECT_THAT(labels({0, 3e-7, Quantity::kPlain}), ElementsAre("0", "1e-7", "2e-7", "3e-7"));
  EXPECT_THAT(labels({-1.2, 1.2, Quantity::kPlain}), ElementsAre("-1", "0", "1"));
}

TEST(Axis, WritesSharesAndBytesWithTheirUnits) {
  EXPECT_THAT(labels({0, 0.04, Quantity::kShare}), ElementsAre("0 %", "1 %", "2 %", "3 %", "4 %"));
  EXPECT_THAT(labels({0, 3 * 0x1p30, Quantity::kBytes}),
              ElementsAre("0 GiB", "1 GiB", "2 GiB", "3 GiB"));
}

TEST(Axis, PlacesValuesBetweenItsEnds) {
  const Axis axis(2, 4, Quantity::kPlain);
  EXPECT_EQ(axis.place(2), 0.0);
  EXPECT_EQ(axis.place(3), 0.5);
  EXPECT_EQ(axis.place(5), 1.0);
  for (const ScaleTick& tick : axis.ticks(4)) {
    EXPECT_NEAR(tick.place, (std::stod(tick.label) - 2) / 2, 1e-12) << tick.label;
  }
}

TEST(Axis, IsLogarithmicOnDemand) {
  const Axis axis(0.1, 1000, Quantity::kPlain, true);
  EXPECT_NEAR(axis.place(10), 0.5, 1e-12);
  EXPECT_THAT(labels(axis), ElementsAre("0.1", "1", "10", "100", "1,000"));
  EXPECT_THAT(labels({1e-9, 1e9, Quantity::kPlain, true}), SizeIs(::testing::Le(6)));
}

TEST(Axis, WritesUnitsOnALogarithmicScaleToo) {
  const auto logarithmic = [](double low, double high, Quantity quantity) {
    return labels({low, high, quantity, true});
  };
  EXPECT_THAT(logarithmic(0.5 * 0x1p20, 0x1p28, Quantity::kBytes),
              ElementsAre("1 MiB", "4 MiB", "16 MiB", "64 MiB", "256 MiB"));
  EXPECT_THAT(logarithmic(1, 0x1p42, Quantity::kBytes),
              ElementsAre("1 B", "1 KiB", "1 MiB", "1 GiB", "1 TiB"));
  EXPECT_THAT(logarithmic(1e-5, 1, Quantity::kShare),
              ElementsAre("0.001 %", "0.01 %", "0.1 %", "1 %", "10 %", "100 %"));
  EXPECT_THAT(logarithmic(100, 1e7, Quantity::kPlain),
              ElementsAre("100", "1,000", "10k", "100k", "1M", "10M"));
  EXPECT_THAT(logarithmic(1e-6, 1e-3, Quantity::kPlain),
              ElementsAre("1e-6", "1e-5", "0.0001", "0.001"));
  EXPECT_THAT(logarithmic(1e14, 1e17, Quantity::kPlain),
              ElementsAre("100T", "1000T", "1e16", "1e17"));
  // With one power of ten in it, other numbers.
  EXPECT_THAT(logarithmic(0.02, 0.09, Quantity::kShare), SizeIs(::testing::Ge(2)));
}

TEST(Axis, GivesAConstantSomeRoom) {
  for (const double value : {0.0, 5.0, -3.0, 1e-9, 1e12}) {
    const Axis axis(value, value, Quantity::kPlain);
    EXPECT_LT(axis.place(value), 1.0) << value;
    EXPECT_GE(axis.ticks(4).size(), 1u) << value;
  }
}

}  // namespace
}  // namespace shoal
