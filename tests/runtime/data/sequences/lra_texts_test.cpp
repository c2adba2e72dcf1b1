#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"
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

class LraTexts : public ::testing::Test {
 protected:
  std::unique_ptr<SampleSet> open(const char* source, const std::string& text, int64_t max_length) {
    write_file(folder_.file("train.tsv"), text);
    return testing::source_of(fmt::format("{{source: {}, path: {}, train: {{files: [train.tsv]}}, "
                                          "valid: {{files: [valid.tsv]}}, max_length: {}}}",
                                          source, folder_.path(), max_length))
        ->open(Split::kTrain);
  }

  ScratchFolder folder_;
};

TEST_F(LraTexts, AreTheBytesAfterTheLabel) {
  const auto set = open("lra_text", "1\tab\t\xFFz\n0\tlong enough\r\n", 5);
  ASSERT_EQ(set->size(), 2);
  const Sample first = set->read(0, 0), second = set->read(1, 0);
  EXPECT_EQ(first.label, 1);
  EXPECT_EQ(first.token_S, (std::vector<int64_t>{'a' + 1, 'b' + 1, '\t' + 1, 256, 'z' + 1}));
  EXPECT_EQ(second.label, 0);
  EXPECT_EQ(second.token_S, (std::vector<int64_t>{'l' + 1, 'o' + 1, 'n' + 1, 'g' + 1, ' ' + 1}));
  EXPECT_THAT(set->fingerprint(), HasSubstr("train.tsv 23 "));
}

TEST_F(LraTexts, TakeLinesWithoutLabels) {
  const auto tokens = [&](const char* name, const std::string& line) {
    const auto source = testing::source_of(fmt::format(
        "{{source: {}, train: {{files: [a]}}, valid: {{files: [b]}}, max_length: 5}}", name));
    return source->sample_of_line(line).value().token_S;
  };
  EXPECT_EQ(tokens("lra_text", "a\tlong one"),
            open("lra_text", "1\ta\tlong one\n", 5)->read(0, 0).token_S);
  EXPECT_EQ(tokens("lra_retrieval", "P Q\tlonger"),
            open("lra_retrieval", "0\t1\t2\tP Q\tlonger\n", 5)->read(0, 0).token_S);
  EXPECT_THROW(tokens("lra_text", ""), DataError);
  EXPECT_THROW(tokens("lra_retrieval", "no tab"), DataError);
  EXPECT_THROW(tokens("lra_retrieval", "\t"), DataError);
}

TEST_F(LraTexts, RefuseALineWithoutTextWhenTheyAreOpened) {
  const auto refusal = [](const std::function<void()>& open) -> std::string {
    try {
      open();
    } catch (const DataError& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(refusal([&] { open("lra_text", "1\ta\n0\t\n", 5); }),
              HasSubstr("train.tsv: line 2: the text is empty"));
  EXPECT_THAT(refusal([&] { open("lra_retrieval", "1\tP\tQ\t\tb\n1\tP\tQ\t\t\r\n", 5); }),
              HasSubstr("train.tsv: line 2: the text is empty"));
}

TEST_F(LraTexts, RefuseToTrainAndEvaluateOnOneFile) {
  for (const char* source : {"lra_text", "lra_retrieval"}) {
    const std::string text =
        fmt::format("{{source: {}, train: {{files: [a, b]}}, valid: {{files: [./b]}}}}", source);
    EXPECT_THAT(testing::training_mistakes_of(*testing::source_of(text)),
                ElementsAre(HasSubstr("valid.files: b is trained on as well")));
  }
}

TEST_F(LraTexts, TellTheirShapes) {
  const std::string files = ", train: {files: [a]}, valid: {files: [b]}}";
  EXPECT_EQ(testing::source_of("{source: lra_text, classes: 5" + files)->shape().text(),
            "up to 4096 tokens of a vocabulary of 257 and labels of 5 classes");
  EXPECT_EQ(testing::source_of("{source: lra_retrieval" + files)->shape().text(),
            "up to 8001 tokens of a vocabulary of 258 and labels of 2 classes");
}

TEST_F(LraTexts, RetrievalJoinsTwoTexts) {
  const auto set =
      open("lra_retrieval", "1.0\tP1\tP2\tabcd\txy\n0.0\tP1\tP3\ta\t\n0.0\tP1\tP3\t\tb\n", 3);
  const Sample pair = set->read(0, 0);
  EXPECT_EQ(pair.label, 1);
  EXPECT_EQ(pair.token_S, (std::vector<int64_t>{'a' + 1, 'b' + 1, 'c' + 1, 257, 'x' + 1, 'y' + 1}));
  EXPECT_EQ(set->read(1, 0).token_S, (std::vector<int64_t>{'a' + 1, 257}));
  EXPECT_EQ(set->read(2, 0).token_S, (std::vector<int64_t>{257, 'b' + 1}));
}

TEST_F(LraTexts, RetrievalNamesFileAndLineOfALineCutShort) {
  try {
    open("lra_retrieval", "1\ta\tb\tc\td\n1\ta\tb\tc\n", 3);
    ADD_FAILURE() << "accepted";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("train.tsv: line 2: 4 columns, expected "
                                        "label<TAB>id1<TAB>id2<TAB>text1<TAB>text2"));
  }
}

TEST_F(LraTexts, AreReadFromRecipes) {
  const auto read = [](const std::string& source, const std::string& keys) {
    return testing::mistakes_of([&] { testing::source_of("{source: " + source + keys + "}"); });
  };
  const std::string files = ", path: f, train: {files: [a]}, valid: {files: [b]}";
  for (const char* source : {"lra_text", "lra_retrieval"}) {
    EXPECT_THAT(read(source, files + ", max_length: 100"), ElementsAre());
    EXPECT_THAT(read(source, ", train: {files: [a]}"),
                ElementsAre(HasSubstr("valid.files: required key is missing")));
    EXPECT_THAT(read(source, ", train: {files: [a, a]}, valid: {files: [b]}"),
                ElementsAre(HasSubstr("train.files: a is named twice")));
  }
  EXPECT_THAT(read("lra_text", files + ", classes: 1"), ElementsAre(HasSubstr("classes")));
}

}  // namespace
}  // namespace shoal
