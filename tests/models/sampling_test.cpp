#include "models/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {
namespace {

/// Logits of probabilities 0.1, 0.4, 0.1, 0.3, 0.1.
const std::vector<double> kLogits{std::log(1.0), std::log(4.0), std::log(1.0), std::log(3.0),
                                  std::log(1.0)};

/// How often each id is chosen, of a thousand draws spread evenly.
std::map<int64_t, int> shares(const Sampling& sampling,
                              const std::vector<double>& logits = kLogits) {
  std::map<int64_t, int> count;
  for (int i = 0; i < 1000; ++i) ++count[choose_token(logits, sampling, (i + 0.5) / 1000)];
  return count;
}

using Shares = std::map<int64_t, int>;

TEST(Sampling, DrawsFromTheSoftmax) {
  EXPECT_EQ(shares({}), (Shares{{0, 100}, {1, 400}, {2, 100}, {3, 300}, {4, 100}}));
}

TEST(Sampling, TemperatureDividesTheLogits) {
  // Squares: 1, 16, 1, 9, 1 of 28.
  const Shares found = shares({.temperature = 0.5});
  EXPECT_NEAR(found.at(1), 1000 * 16 / 28.0, 1);
  EXPECT_NEAR(found.at(3), 1000 * 9 / 28.0, 1);
  EXPECT_NEAR(found.at(4), 1000 * 1 / 28.0, 1);
}

TEST(Sampling, TemperatureZeroIsGreedyAndTakesTheLowerIdOfEqualLogits) {
  EXPECT_EQ(shares({.temperature = 0.0}), (Shares{{1, 1000}}));
  EXPECT_EQ(shares({.temperature = 0.0}, {1.0, 2.0, 2.0}), (Shares{{1, 1000}}));
}

TEST(Sampling, TopKKeepsTheHighestAndOfEqualOnesTheLowerIds) {
  EXPECT_EQ(shares({.top_k = 1}), (Shares{{1, 1000}}));
  const Shares two = shares({.top_k = 2});
  EXPECT_NEAR(two.at(1), 1000 * 4 / 7.0, 1);
  EXPECT_NEAR(two.at(3), 1000 * 3 / 7.0, 1);
  EXPECT_EQ(shares({.top_k = 3}), (Shares{{0, 125}, {1, 500}, {3, 375}}));
  EXPECT_EQ(shares({.top_k = 9}), shares({}));
}

TEST(Sampling, TopPKeepsTheFewestThatReachIt) {
  EXPECT_EQ(shares({.top_p = 0.39}), (Shares{{1, 1000}}));
  EXPECT_EQ(shares({.top_p = 0.41}).size(), 2u);
  EXPECT_EQ(shares({.top_p = 0.75}), (Shares{{0, 125}, {1, 500}, {3, 375}}));
}

TEST(Sampling, TopPIsOfWhatTopKLeaves) {
  // 4 / 7 and 3 / 7.
  EXPECT_EQ(shares({.top_k = 2, .top_p = 0.56}), (Shares{{1, 1000}}));
  EXPECT_EQ(shares({.top_k = 2, .top_p = 0.58}).size(), 2u);
}

TEST(Sampling, SortsALargeVocabularyAsFarAsItMust) {
  std::vector<double> logits;
  for (int i = 0; i < 5000; ++i) logits.push_back(std::log(1.0 + (i * 7919) % 5000));
  // Weights 1 to 5000: the 2500 highest have 3/4 of the sum.
  for (const double uniform : {0.0001, 0.3, 0.7, 0.9999}) {
    const int64_t id = choose_token(logits, {.top_p = 0.75}, uniform);
    EXPECT_GE(std::exp(logits[static_cast<size_t>(id)]), 2499.0) << uniform;
  }
}

TEST(Sampling, NeverChoosesWhatHasNoProbability) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(shares({}, {kNever, 0.0, kNever}), (Shares{{1, 1000}}));
  EXPECT_EQ(shares({.top_k = 2}, {kNever, 0.0, kNever}), (Shares{{1, 1000}}));
}

TEST(Sampling, RefusesLogitsThatAreNotFinite) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(choose_token(std::vector<double>{0.0, bad}, {.temperature = 0.0}, 0.5), Error);
  }
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  EXPECT_THROW(choose_token(std::vector<double>{kNever, kNever}, {}, 0.5), Error);
}

}  // namespace
}  // namespace shoal
