#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/data/batch.h"
#include "tests/runtime/data/source_of.h"
#include "tests/support/config_error.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using MqarKeys = std::vector<std::string>;

std::shared_ptr<DataSource> small_mqar(const MqarKeys& changes = {}) {
  return testing::source_of(
      "{source: mqar, sequence: 32, vocabulary: 64, pairs: 4, train: {samples: 500}, valid: "
      "{samples: 500}}",
      changes);
}

Sample mqar_sample(const MqarKeys& changes, Split split, int64_t index) {
  return small_mqar(changes)->open(split)->read(index, 0);
}

TEST(Mqar, LabelsEachKeysSecondOccurrenceWithItsValue) {
  for (const std::string filler : {"random", "zero"}) {
    const auto set = small_mqar({"filler=" + filler})->open(Split::kTrain);
    for (int64_t index = 0; index < set->size(); ++index) {
      const Sample sample = set->read(index, 0);
      ASSERT_EQ(sample.token_S.size(), 32u);
      ASSERT_EQ(sample.token_label_S.size(), 32u);
      std::map<int64_t, int64_t> value_of;
      std::set<int64_t> values;
      for (size_t i = 0; i < 8; i += 2) {
        EXPECT_GE(sample.token_S[i], 1);
        EXPECT_LT(sample.token_S[i], 32);
        EXPECT_GE(sample.token_S[i + 1], 32);
        EXPECT_LT(sample.token_S[i + 1], 64);
        value_of[sample.token_S[i]] = sample.token_S[i + 1];
        values.insert(sample.token_S[i + 1]);
        EXPECT_EQ(sample.token_label_S[i], kNoLabel);
        EXPECT_EQ(sample.token_label_S[i + 1], kNoLabel);
      }
      EXPECT_EQ(value_of.size(), 4u);
      EXPECT_EQ(values.size(), 4u);
      std::set<int64_t> asked;
      for (size_t i = 8; i < 32; ++i) {
        if (sample.token_label_S[i] != kNoLabel) {
          EXPECT_EQ(i % 2, 0u);
          EXPECT_EQ(sample.token_label_S[i], value_of.at(sample.token_S[i]));
          asked.insert(sample.token_S[i]);
        } else if (filler == "zero") {
          EXPECT_EQ(sample.token_S[i], 0);
        } else {
          EXPECT_LT(sample.token_S[i], 64);
        }
      }
      EXPECT_EQ(asked.size(), 4u);
    }
  }
}

TEST(Mqar, AreAFunctionOfSeedSplitAndIndex) {
  const Sample sample = mqar_sample({}, Split::kTrain, 7);
  EXPECT_EQ(sample.token_S, mqar_sample({}, Split::kTrain, 7).token_S);
  EXPECT_NE(sample.token_S, mqar_sample({}, Split::kTrain, 8).token_S);
  EXPECT_NE(sample.token_S, mqar_sample({}, Split::kValid, 7).token_S);
  EXPECT_EQ(sample.token_S, mqar_sample({"train.samples=8"}, Split::kTrain, 7).token_S);
  EXPECT_NE(sample.token_S, mqar_sample({"seed=1"}, Split::kTrain, 7).token_S);
}

/// The share of samples that ask for pair 0 at each place.
std::vector<double> places_of_first_pair(const MqarKeys& changes) {
  const auto set = small_mqar(changes)->open(Split::kTrain);
  constexpr size_t begin = 2 * 4;  // behind the pairs
  std::vector<double> share((32 - begin) / 2, 0.0);
  for (int64_t index = 0; index < set->size(); ++index) {
    const Sample sample = set->read(index, 0);
    for (size_t i = begin; i < sample.token_S.size(); ++i) {
      if (sample.token_label_S[i] != sample.token_S[1]) continue;
      share[(i - begin) / 2] += 1.0 / static_cast<double>(set->size());
    }
  }
  return share;
}

// The first pair's place is drawn before all others: its distribution is the power law itself.
TEST(Mqar, PlacesQueriesByThePowerLaw) {
  for (const double power : {0.01, 0.5, 1.0}) {
    const std::vector<double> share =
        places_of_first_pair({"train.samples=20000", fmt::format("power_a={}", power)});
    ASSERT_EQ(share.size(), 12u);
    double sum = 0.0;
    for (int i = 1; i <= 12; ++i) sum += std::pow(i, power - 1);
    for (int i = 1; i <= 12; ++i) {
      const double expected = std::pow(i, power - 1) / sum;
      EXPECT_NEAR(share[static_cast<size_t>(i - 1)], expected,
                  4 * std::sqrt(expected * (1 - expected) / 20000))
          << "power " << power << ", place " << i;
    }
  }
}

TEST(Mqar, DrawsKeysValuesAndFillerAlike) {
  const auto set = small_mqar({"train.samples=10000"})->open(Split::kTrain);
  std::map<int64_t, int64_t> keys, values, filler;
  int64_t num_filler = 0;
  for (int64_t index = 0; index < set->size(); ++index) {
    const Sample sample = set->read(index, 0);
    ++keys[sample.token_S[4]];
    ++values[sample.token_S[5]];
    for (size_t i = 9; i < 32; i += 2) ++filler[sample.token_S[i]], ++num_filler;
  }
  const auto expect_alike = [](const std::map<int64_t, int64_t>& counts, size_t kinds,
                               int64_t total) {
    EXPECT_EQ(counts.size(), kinds);
    const double expected = static_cast<double>(total) / static_cast<double>(kinds);
    for (const auto& [token, count] : counts) {
      EXPECT_NEAR(static_cast<double>(count), expected, 4.5 * std::sqrt(expected)) << token;
    }
  };
  expect_alike(keys, 31, 10000);
  expect_alike(values, 32, 10000);
  expect_alike(filler, 64, num_filler);
}

TEST(Mqar, TellsItsShape) {
  EXPECT_EQ(small_mqar()->shape().text(), "32 tokens of a vocabulary of 64, 4 labelled");
  EXPECT_EQ(small_mqar()->shape().token_labels, 4);
}

TEST(Mqar, FillsASequenceToTheLastPlace) {
  const MqarKeys tight{"sequence=16", "vocabulary=10"};  // four keys
  for (int64_t index = 0; index < 50; ++index) {
    const Sample sample = mqar_sample(tight, Split::kValid, index);
    for (size_t i = 8; i < 16; ++i) EXPECT_EQ(sample.token_label_S[i] != kNoLabel, i % 2 == 0);
  }
}

TEST(Mqar, RefusesWhatIsTooSmallForThePairs) {
  const auto mistakes = [](const std::string& keys) {
    return testing::mistakes_of([&] { testing::source_of("{source: mqar" + keys + "}"); });
  };
  EXPECT_THAT(mistakes(", sequence: 31"),
              ElementsAre(HasSubstr("sequence: 31 tokens have no room for 8 pairs and their "
                                    "queries, which take 32")));
  EXPECT_THAT(mistakes(", vocabulary: 17"),
              ElementsAre(HasSubstr("vocabulary: 17 tokens give 7 keys, and there are 8 pairs")));
  EXPECT_THAT(mistakes(", power_a: 0"), ElementsAre(HasSubstr("power_a")));
  EXPECT_THAT(mistakes(""), ElementsAre());
}

}  // namespace
}  // namespace shoal
