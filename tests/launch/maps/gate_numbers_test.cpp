#include "launch/maps/gate_numbers.h"

#include <gtest/gtest.h>

#include <cmath>

namespace shoal {
namespace {

TEST(GateNumbers, HaveNoInformationWhereTheGateIsIndependent) {
  EXPECT_NEAR(mutual_information({{3, {6, 2}}, {9, {3, 1}}, {11, {12, 4}}}), 0.0, 1e-15);
  EXPECT_EQ(mutual_information({{3, {5, 0}}, {9, {7, 0}}}), 0.0);
  EXPECT_EQ(mutual_information({}), 0.0);
}

TEST(GateNumbers, HaveTheEntropyOfAGateThatTheValueDecides) {
  const double entropy = -0.25 * std::log(0.25) - 0.75 * std::log(0.75);
  EXPECT_NEAR(mutual_information({{0, {6, 0}}, {1, {0, 2}}}), entropy, 1e-15);
}

TEST(GateNumbers, FollowTheFormula) {
  // n = 8, four tokens of either value; open are one of the first's and two of the second's.
  const double expected =
      3.0 / 8 * std::log(3.0 * 8 / (5 * 4)) + 1.0 / 8 * std::log(1.0 * 8 / (3 * 4)) +
      2.0 / 8 * std::log(2.0 * 8 / (5 * 4)) + 2.0 / 8 * std::log(2.0 * 8 / (3 * 4));
  EXPECT_NEAR(mutual_information({{0, {3, 1}}, {1, {2, 2}}}), expected, 1e-15);
}

TEST(GateNumbers, AreOfOneGateOverAllSamples) {
  const std::vector<GatedSample> samples{
      {"a", {1, 2, 1, 2}, {false, true, false, true}, {{1, 1, 1, 1}, {0, 1, 0, 1}}},
      {"b", {1, 1}, {false, false}, {{0, 0}, {0, 0}}}};
  const GateNumbers first = gate_numbers(samples, 0, 32), second = gate_numbers(samples, 1, 32);
  EXPECT_DOUBLE_EQ(first.rate, 4.0 / 6);
  EXPECT_DOUBLE_EQ(second.rate, 2.0 / 6);
  EXPECT_EQ(first.labelled_rate, 1.0);
  // Labels and ids are the same partition, and the second gate's.
  const double entropy = -1.0 / 3 * std::log(1.0 / 3) - 2.0 / 3 * std::log(2.0 / 3);
  EXPECT_NEAR(second.token_information, entropy, 1e-15);
  EXPECT_NEAR(second.label_information.value(), entropy, 1e-15);
  // Two positions a part.
  EXPECT_EQ(first.rate_by_position[0], 0.5);
  EXPECT_EQ(first.rate_by_position[1], 1.0);
  EXPECT_EQ(first.rate_by_position[2], std::nullopt);
}

TEST(GateNumbers, LeaveOutWhatNeedsLabels) {
  const GateNumbers numbers = gate_numbers({{"a", {1, 2}, {}, {{1, 0}}}}, 0, 2);
  EXPECT_EQ(numbers.labelled_rate, std::nullopt);
  EXPECT_EQ(numbers.label_information, std::nullopt);
  EXPECT_EQ(numbers.rate_by_position[0], 1.0);
  EXPECT_EQ(numbers.rate_by_position[8], 0.0);
}

}  // namespace
}  // namespace shoal
