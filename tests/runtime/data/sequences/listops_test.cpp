#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/sequences/listops_expression.h"
#include "tests/runtime/data/source_of.h"
#include "tests/runtime/data/training_mistakes.h"
#include "tests/support/config_error.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::write_file;

/// A parsed expression: a digit, or an operator with arguments.
struct ParsedNode {
  int64_t token = 0;
  std::vector<ParsedNode> args;

  bool is_operator() const { return token >= kListOpsMin; }
  int64_t depth() const {
    int64_t deepest = 0;
    for (const ParsedNode& arg : args) deepest = std::max(deepest, arg.depth());
    return 1 + deepest;
  }
  int64_t value() const {
    if (!is_operator()) return token - kListOpsDigit;
    std::vector<int64_t> values;
    for (const ParsedNode& arg : args) values.push_back(arg.value());
    std::sort(values.begin(), values.end());
    const size_t n = values.size();
    if (token == kListOpsMin) return values.front();
    if (token == kListOpsMax) return values.back();
    if (token == kListOpsMed) {  // numpy's median, then int()
      const double median = n % 2 == 1
                                ? static_cast<double>(values[n / 2])
                                : static_cast<double>(values[n / 2 - 1] + values[n / 2]) / 2.0;
      return static_cast<int64_t>(median);
    }
    int64_t sum = 0;
    for (const int64_t value : values) sum += value;
    return sum % 10;
  }
};

ParsedNode parse_node(const std::vector<int64_t>& tokens, size_t& at) {
  ParsedNode node{tokens.at(at++), {}};
  EXPECT_GE(node.token, kListOpsDigit);
  EXPECT_LT(node.token, kListOpsClose);
  if (!node.is_operator()) return node;
  while (tokens.at(at) != kListOpsClose) node.args.push_back(parse_node(tokens, at));
  ++at;
  return node;
}

ParsedNode parse_all(const std::vector<int64_t>& tokens) {
  size_t at = 0;
  ParsedNode node = parse_node(tokens, at);
  EXPECT_EQ(at, tokens.size());
  return node;
}

using ListOpsKeys = std::vector<std::string>;

/// Expressions of 4 to 39 tokens, at most 4 deep, operators of at most 5 arguments.
std::shared_ptr<DataSource> tiny_listops(int64_t samples = 300, const ListOpsKeys& changes = {}) {
  return testing::source_of(
      fmt::format("{{source: listops, min_length: 3, max_length: 40, max_depth: 4, max_args: 5, "
                  "train: {{samples: {0}}}, valid: {{samples: {0}}}}}",
                  samples),
      changes);
}

std::vector<Sample> read_expressions(const DataSource& source, Split split) {
  const auto set = source.open(split);
  std::vector<Sample> samples;
  for (int64_t i = 0; i < set->size(); ++i) samples.push_back(set->read(i, 0));
  return samples;
}

TEST(ListOps, LabelsAreTheValuesOfAnotherEvaluator) {
  std::map<int64_t, int64_t> operators;
  for (const Sample& sample : read_expressions(*tiny_listops(3000), Split::kTrain)) {
    const ParsedNode node = parse_all(sample.token_S);
    EXPECT_EQ(sample.label, node.value());
    ++operators[node.token];
  }
  EXPECT_EQ(operators.size(), 4u);
}

TEST(ListOps, TheOtherEvaluatorIsRightByHand) {
  const auto value = [](const std::vector<int64_t>& tokens) { return parse_all(tokens).value(); };
  const auto digit = [](int64_t d) { return kListOpsDigit + d; };
  EXPECT_EQ(value({digit(7)}), 7);
  EXPECT_EQ(value({kListOpsMin, digit(4), digit(2), digit(9), kListOpsClose}), 2);
  EXPECT_EQ(value({kListOpsMed, digit(1), digit(9), digit(4), digit(4), kListOpsClose}), 4);
  EXPECT_EQ(value({kListOpsMed, digit(1), digit(2), kListOpsClose}), 1);  // int(1.5)
  EXPECT_EQ(value({kListOpsSumMod, digit(8), kListOpsMax, digit(3), digit(5), kListOpsClose,
                   digit(9), kListOpsClose}),
            2);
}

TEST(ListOps, KeepsToItsRule) {
  const auto source = tiny_listops(1000);
  int64_t longest = 0, deepest = 0;
  size_t most_args = 0;
  for (const Split split : {Split::kTrain, Split::kValid}) {
    for (const Sample& sample : read_expressions(*source, split)) {
      const auto length = static_cast<int64_t>(sample.token_S.size());
      EXPECT_GT(length, 3);
      EXPECT_LT(length, 40);
      const ParsedNode node = parse_all(sample.token_S);
      EXPECT_LE(node.depth(), 4);
      longest = std::max(longest, length);
      deepest = std::max(deepest, node.depth());
      most_args = std::max(most_args, node.args.size());
    }
  }
  EXPECT_EQ(longest, 39);
  EXPECT_EQ(deepest, 4);
  EXPECT_EQ(most_args, 5u);
}

/// NodeCounts of the nodes that may be operators, and of what they are.
struct NodeCounts {
  int64_t inner = 0, operators = 0, leaves = 0;
  std::map<int64_t, int64_t> digit, op, args;

  /// Without the root, which the least length makes an operator.
  void add_below(const ParsedNode& node, int64_t depth, int64_t max_depth) {
    for (const ParsedNode& arg : node.args) {
      if (depth + 1 < max_depth) {
        ++inner;
        operators += arg.is_operator() ? 1 : 0;
      }
      if (arg.is_operator()) {
        ++op[arg.token];
        ++args[static_cast<int64_t>(arg.args.size())];
      } else {
        ++leaves;
        ++digit[arg.token - kListOpsDigit];
      }
      add_below(arg, depth + 1, max_depth);
    }
  }
};

// Chances are those of four standard errors; numbers are keyed, so what passes once always does.
TEST(ListOps, DrawsOperatorsDigitsAndArgumentsWithLrasProbabilities) {
  const auto source = tiny_listops(6000, {"max_length=10000"});  // none is too long
  NodeCounts counts;
  for (const Sample& sample : read_expressions(*source, Split::kTrain)) {
    counts.add_below(parse_all(sample.token_S), 1, /*max_depth=*/4);
  }
  const auto expect_share = [](int64_t count, int64_t of, double expected) {
    const auto total = static_cast<double>(of);
    EXPECT_NEAR(static_cast<double>(count) / total, expected,
                4 * std::sqrt(expected * (1 - expected) / total));
  };
  EXPECT_GT(counts.inner, 20000);
  expect_share(counts.operators, counts.inner, 0.25);
  for (int64_t digit = 0; digit < 10; ++digit) {
    expect_share(counts.digit[digit], counts.leaves, 0.1);
  }
  for (int64_t op = kListOpsMin; op < kListOpsClose; ++op) {
    expect_share(counts.op[op], counts.operators, 0.25);
  }
  for (int64_t args = 2; args <= 5; ++args) {
    expect_share(counts.args[args], counts.operators, 0.25);
  }
}

TEST(ListOps, AreAFunctionOfSeedSplitAndIndex) {
  const auto tokens = [](const std::shared_ptr<DataSource>& source, Split split) {
    std::vector<std::vector<int64_t>> all;
    for (const Sample& sample : read_expressions(*source, split)) all.push_back(sample.token_S);
    return all;
  };
  const auto source = tiny_listops(40);
  const auto train = tokens(source, Split::kTrain);
  EXPECT_EQ(train, tokens(source, Split::kTrain));
  EXPECT_NE(train, tokens(source, Split::kValid));
  EXPECT_EQ(source->open(Split::kTrain)->read(13, 5).token_S, train[13]);
  auto grown = tokens(tiny_listops(80), Split::kTrain);
  grown.resize(40);
  EXPECT_EQ(grown, train);
  EXPECT_NE(train, tokens(tiny_listops(40, {"seed=1"}), Split::kTrain));
}

TEST(ListOps, SplitsShareNoExpression) {
  const auto source = tiny_listops(4000, {"max_length=8", "max_depth=2", "max_args=4"});
  std::set<std::vector<int64_t>> train;
  for (const Sample& sample : read_expressions(*source, Split::kTrain))
    train.insert(sample.token_S);
  EXPECT_LT(train.size(), 4000u);  // short ones repeat
  for (const Sample& sample : read_expressions(*source, Split::kValid)) {
    EXPECT_FALSE(train.contains(sample.token_S));
  }
}

TEST(ListOps, HasTheSizesOfTheLongRangeArena) {
  const auto source = testing::source_of("{source: listops}");
  EXPECT_EQ(source->shape().text(),
            "up to 2000 tokens of a vocabulary of 16 and labels of 10 classes");
  const auto set = source->open(Split::kTrain);
  EXPECT_EQ(set->size(), 96000);
  EXPECT_EQ(source->open(Split::kValid)->size(), 2000);
  for (int64_t i = 0; i < 20; ++i) {
    const Sample sample = set->read(i, 0);
    EXPECT_GT(sample.token_S.size(), 500u);
    EXPECT_LT(sample.token_S.size(), 2000u);
    EXPECT_EQ(sample.label, parse_all(sample.token_S).value());
  }
}

std::vector<std::string> listops_mistakes(const std::string& keys) {
  return testing::mistakes_of([&] { testing::source_of("{source: listops" + keys + "}"); });
}

TEST(ListOps, RefusesLengthsThatNoExpressionHas) {
  EXPECT_THAT(listops_mistakes(", min_length: 50, max_length: 50"),
              ElementsAre(HasSubstr("min_length: no length is above 50 and below max_length 50")));
  EXPECT_THAT(listops_mistakes(", min_length: 20, max_length: 50, max_depth: 2"),
              ElementsAre(HasSubstr("max_depth: expressions of depth 2 with 10 arguments have 12 "
                                    "tokens at most")));
  // Nothing has 2 or 3 tokens; two arguments are too few for 500 in practice.
  for (const char* keys : {", min_length: 1, max_length: 4", ", max_args: 2"}) {
    EXPECT_THAT(listops_mistakes(keys),
                ElementsAre(HasSubstr("min_length: hardly any expression has more than")));
  }
  EXPECT_THAT(listops_mistakes(""), ElementsAre());
}

TEST(ListOps, ReadsTheFilesOfLrasGenerator) {
  const ScratchFolder folder;
  write_file(folder.file("basic_train.tsv"),
             "Source\tTarget\r\n"
             "( ( ( ( [MED 3 ) 8 ) ( ( ( [SM 9 ) 4 ) ] ) ) ] )\t3\r\n"
             "7\t7\r\n");
  const auto source = tiny_listops(
      300, {"path=" + folder.path(), "train.samples=auto", "train.files=[basic_train.tsv]"});
  const auto set = source->open(Split::kTrain);
  ASSERT_EQ(set->size(), 2);
  const Sample sample = set->read(0, 0);
  EXPECT_EQ(sample.token_S, (std::vector<int64_t>{kListOpsMed, 4, 9, kListOpsSumMod, 10, 5,
                                                  kListOpsClose, kListOpsClose}));
  EXPECT_EQ(sample.label, parse_all(sample.token_S).value());
  EXPECT_EQ(set->read(1, 0).token_S, (std::vector<int64_t>{8}));
  EXPECT_EQ(source->sample_of_line("[MED 3 8 [SM 9 4 ] ]").value().token_S, sample.token_S);
  EXPECT_THROW(source->sample_of_line("[MED 3 x ]"), DataError);
  EXPECT_THROW(source->sample_of_line("( )"), DataError);
  EXPECT_THAT(set->fingerprint(), HasSubstr("basic_train.tsv"));
  EXPECT_EQ(source->open(Split::kValid)->size(), 300);  // drawn
}

std::string listops_file_error(const std::string& text, int64_t max_length = 40) {
  const ScratchFolder folder;
  write_file(folder.file("f.tsv"), text);
  try {
    testing::source_of(fmt::format("{{source: listops, max_length: {}, path: {}, train: {{files: "
                                   "[f.tsv]}}, valid: {{files: [g.tsv]}}}}",
                                   max_length, folder.path()))
        ->open(Split::kTrain);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ListOps, NamesFileAndLineOfWhatItCannotReadWhenItIsOpened) {
  EXPECT_THAT(listops_file_error("7\t7\n"), HasSubstr("f.tsv: line 1: begins with '7?7'"));
  EXPECT_THAT(listops_file_error("Source\tTarget\n7\t7\n[FIRST 1 2 ]\t1\n"),
              HasSubstr("f.tsv: line 3: no operator, bracket or digit at byte 0 of the line"));
  EXPECT_THAT(listops_file_error("Source\tTarget\n7\t10\n"),
              HasSubstr("f.tsv: line 2: the label is '10', expected a whole number below 10"));
  EXPECT_THAT(listops_file_error("Source\tTarget\n[MIN 1 2 ]\t1\n", 3),
              HasSubstr("f.tsv: line 2: 4 tokens, expected 1 to 3"));
  EXPECT_THAT(listops_file_error("Source\tTarget\n ( )\t1\n"),
              HasSubstr("f.tsv: line 2: 0 tokens, expected 1 to 40"));
}

TEST(ListOps, ChecksTheRuleOfExpressionsThatAreDrawnAlone) {
  const std::string keys = ", max_length: 128, train: {files: [a]}";
  EXPECT_THAT(listops_mistakes(keys), ElementsAre(HasSubstr("min_length: no length is above 500")));
  EXPECT_THAT(listops_mistakes(keys + ", valid: {files: [b]}"), ElementsAre());
}

TEST(ListOps, RefusesANumberOfSamplesBesideFiles) {
  EXPECT_THAT(listops_mistakes(", train: {files: [a], samples: 1000}"),
              ElementsAre(HasSubstr("train.samples: counts what is drawn, and files are read")));
}

TEST(ListOps, RefusesToTrainWhereSplitsMayShareExpressions) {
  const auto refused = [](const ListOpsKeys& files) {
    return testing::training_mistakes_of(*testing::source_of("{source: listops}", files));
  };
  const std::string train_a = "train.files=[a]", valid_b = "valid.files=[b]";
  EXPECT_THAT(refused({}), ElementsAre());
  EXPECT_THAT(refused({train_a, valid_b}), ElementsAre());
  EXPECT_THAT(refused({train_a, "valid.files=[a]"}),
              ElementsAre(HasSubstr("valid.files: a is trained on as well")));
  EXPECT_THAT(refused({train_a}), ElementsAre(HasSubstr("valid.files: the other split's files")));
  EXPECT_THAT(refused({valid_b}), ElementsAre(HasSubstr("train.files: the other split's files")));
}

TEST(ListOps, RefusesAFileTwice) {
  EXPECT_THAT(listops_mistakes(", train: {files: [a, a]}"),
              ElementsAre(HasSubstr("train.files: a is named twice")));
}

}  // namespace
}  // namespace shoal
