#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/batch.h"
#include "runtime/data/sequences/listops_expression.h"
#include "tests/runtime/data/source_of.h"
#include "tests/support/config_error.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kEqualsToken = kListOpsVocabulary, kFirstFiller = kListOpsVocabulary + 1;

std::shared_ptr<DataSource> small_mixed(const std::vector<std::string>& changes = {}) {
  return testing::source_of(
      "{source: mixed_complexity, sequence: 96, islands: 3, filler: {tokens: 10, successors: 3}, "
      "train: {samples: 300}, valid: {samples: 300}}",
      changes);
}

/// A sample taken apart again.
struct IslandParts {
  std::vector<std::vector<int64_t>> islands;  ///< without `=`
  std::vector<int64_t> answers;               ///< digits
  std::vector<int64_t> filler;                ///< states of the chain
};

IslandParts take_apart(const Sample& sample) {
  IslandParts parts;
  std::vector<int64_t> open;
  for (size_t i = 0; i < sample.token_S.size(); ++i) {
    const int64_t token = sample.token_S[i], label = sample.token_label_S[i];
    EXPECT_EQ(label != kNoLabel, token == kEqualsToken);
    if (token == kEqualsToken) {
      parts.islands.push_back(std::exchange(open, {}));
      parts.answers.push_back(label - kListOpsDigit);
    } else if (token < kEqualsToken) {
      open.push_back(token);
    } else {
      EXPECT_TRUE(open.empty()) << "filler inside an island";
      parts.filler.push_back(token - kFirstFiller);
    }
  }
  EXPECT_TRUE(open.empty());
  return parts;
}

/// Value of a bracketed expression; `at` ends behind it.
int64_t island_value(const std::vector<int64_t>& tokens, size_t& at) {
  const int64_t token = tokens.at(at++);
  if (token < kListOpsMin) return token - kListOpsDigit;
  std::vector<int64_t> args;
  while (tokens.at(at) != kListOpsClose) args.push_back(island_value(tokens, at));
  ++at;
  std::sort(args.begin(), args.end());
  const size_t n = args.size();
  int64_t sum = 0;
  for (const int64_t arg : args) sum += arg;
  if (token == kListOpsMin) return args[0];
  if (token == kListOpsMax) return args[n - 1];
  if (token == kListOpsMed) return (args[(n - 1) / 2] + args[n / 2]) / 2;
  return sum % 10;
}

TEST(MixedComplexity, LabelsTheEndOfEachIslandWithItsValue) {
  const auto set = small_mixed()->open(Split::kTrain);
  for (int64_t index = 0; index < set->size(); ++index) {
    const Sample sample = set->read(index, 0);
    ASSERT_EQ(sample.token_S.size(), 96u);
    ASSERT_EQ(sample.token_label_S.size(), 96u);
    const IslandParts parts = take_apart(sample);
    ASSERT_EQ(parts.islands.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      size_t at = 0;
      EXPECT_EQ(island_value(parts.islands[i], at), parts.answers[i]);
      EXPECT_EQ(at, parts.islands[i].size());
      EXPECT_GT(parts.islands[i].size(), 3u);
      EXPECT_LT(parts.islands[i].size(), 24u);
    }
  }
}

TEST(MixedComplexity, FillerIsOneChainOfOrderOneInBothSplits) {
  std::map<int64_t, std::map<int64_t, int64_t>> successors;
  for (const Split split : {Split::kTrain, Split::kValid}) {
    const auto set = small_mixed()->open(split);
    for (int64_t index = 0; index < set->size(); ++index) {
      const std::vector<int64_t> filler = take_apart(set->read(index, 0)).filler;
      for (size_t i = 1; i < filler.size(); ++i) ++successors[filler[i - 1]][filler[i]];
    }
  }
  EXPECT_EQ(successors.size(), 10u);
  for (const auto& [state, next] : successors) EXPECT_LE(next.size(), 3u) << state;
  const std::vector<int64_t> filler =
      take_apart(small_mixed({"seed=1"})->open(Split::kTrain)->read(0, 0)).filler;
  int64_t unknown = 0;
  for (size_t i = 1; i < filler.size(); ++i) {
    unknown += successors[filler[i - 1]].contains(filler[i]) ? 0 : 1;
  }
  EXPECT_GT(unknown, 0);
}

TEST(MixedComplexity, IslandsLieAnywhereAndAreNotShared) {
  const auto source = small_mixed();
  std::set<std::vector<int64_t>> trained;
  std::set<size_t> first;
  const auto train = source->open(Split::kTrain), valid = source->open(Split::kValid);
  for (int64_t index = 0; index < 300; ++index) {
    const Sample sample = train->read(index, 0);
    for (const auto& island : take_apart(sample).islands) trained.insert(island);
    size_t at = 0;
    while (sample.token_S[at] > kEqualsToken) ++at;
    first.insert(at);
  }
  EXPECT_GT(trained.size(), 400u);
  EXPECT_GT(first.size(), 25u);
  for (int64_t index = 0; index < 300; ++index) {
    for (const auto& island : take_apart(valid->read(index, 0)).islands) {
      EXPECT_FALSE(trained.contains(island));
    }
  }
}

TEST(MixedComplexity, AreAFunctionOfSeedSplitAndIndex) {
  const auto tokens = [](Split split, int64_t index, const std::vector<std::string>& changes = {}) {
    return small_mixed(changes)->open(split)->read(index, 0).token_S;
  };
  const std::vector<int64_t> sample = tokens(Split::kTrain, 7);
  EXPECT_EQ(sample, tokens(Split::kTrain, 7));
  EXPECT_NE(sample, tokens(Split::kTrain, 8));
  EXPECT_NE(sample, tokens(Split::kValid, 7));
  EXPECT_EQ(sample, tokens(Split::kTrain, 7, {"train.samples=8"}));
}

TEST(MixedComplexity, KeepsTheSamplesThatResultsWereMeasuredWith) {
  const auto set = small_mixed()->open(Split::kTrain);
  std::vector<int64_t> filler = take_apart(set->read(0, 0)).filler;
  filler.resize(32);
  EXPECT_THAT(filler, ElementsAre(7, 4, 5, 9, 0, 0, 0, 0, 0, 0, 0, 5, 7, 4, 7, 6, 5, 9, 0, 0, 6, 1,
                                  1, 2, 1, 1, 8, 7, 6, 5, 7, 0));
}

TEST(MixedComplexity, TellsItsShape) {
  EXPECT_EQ(small_mixed()->shape().text(), "96 tokens of a vocabulary of 27, 3 labelled");
}

TEST(MixedComplexity, RefusesWhatHasNoRoom) {
  const auto mistakes = [](const std::string& keys) {
    return testing::mistakes_of(
        [&] { testing::source_of("{source: mixed_complexity" + keys + "}"); });
  };
  EXPECT_THAT(mistakes(", sequence: 95"),
              ElementsAre(HasSubstr("sequence: 95 tokens have no room for 4 islands, which take up "
                                    "to 96")));
  EXPECT_THAT(mistakes(", filler: {tokens: 3}"),
              ElementsAre(HasSubstr("filler.successors: 4 different tokens, and there are 3")));
  EXPECT_THAT(mistakes(", expression: {min_length: 23}"),
              ElementsAre(HasSubstr("expression.min_length: ")));
  EXPECT_THAT(mistakes(", sequence: 96"), ElementsAre());
}

}  // namespace
}  // namespace shoal
