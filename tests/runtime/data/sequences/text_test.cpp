#include "runtime/data/sequences/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/loader/loader.h"
#include "runtime/options/config_reader.h"
#include "runtime/text/gpt2_tokenizer.h"
#include "runtime/text/token_file.h"
#include "tests/runtime/data/training_mistakes.h"
#include "tests/support/config_error.h"
#include "tests/support/line_tokenizer.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_bpe.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScratchFolder;
using ::testing::UnorderedElementsAre;
using testing::write_file;

using Tokens = std::vector<int64_t>;

class RegisteredLines final : public testing::LineTokenizer {
 public:
  struct Options {
    static constexpr auto fields() { return std::tuple{}; }
  };
  explicit RegisteredLines(const Options& /*options*/) {}
};
const Registration<Tokenizer, RegisteredLines> registered_lines{"test_lines", "for tests"};

/// "abc" → 97, 98, 99.
Tokens ids(const std::string& text) { return {text.begin(), text.end()}; }

class Text : public ::testing::Test {
 protected:
  Text() {
    options_.path = scratch_.path();
    options_.sequence = 4;
    options_.train.files = {"t"};
    options_.valid.files = {"v"};
  }

  void write(const std::string& name, const std::string& text) const {
    write_file(scratch_.file(name), text);
  }
  /// A cache of these tokens; of llm.c's kind if no tokenizer is named.
  void write_cache(const std::string& name, const Tokens& tokens,
                   const std::string& tokenizer = "") const {
    PosixFileSystem files;
    TokenFileWriter writer(files, scratch_.file(name));
    writer.append(tokens);
    writer.finish({.tokenizer = tokenizer,
                   .vocabulary = 256,
                   .num_bytes = 70,
                   .num_words = 11,
                   .sources = {}});
    if (tokenizer.empty()) fs::remove(scratch_.file(name) + ".json");
  }
  std::unique_ptr<SampleSet> open(Split split) const {
    return TextSource(options_, context_).open(split);
  }
  /// The DataError of opening the validation split.
  std::string problem() const {
    try {
      open(Split::kValid);
    } catch (const DataError& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      return error.what();
    }
    return "no error";
  }

  ScratchFolder scratch_;
  TextSource::Options options_;
  DataSource::Context context_{.seed = 1};
};

TEST_F(Text, CutsTheValidationSplitIntoWindowsThatDoNotOverlap) {
  write("v", "0123456789");
  const auto set = open(Split::kValid);
  ASSERT_EQ(set->size(), 2);
  EXPECT_EQ(set->read(0, 0).token_S, ids("0123"));
  EXPECT_EQ(set->read(0, 0).token_label_S, ids("1234"));
  EXPECT_EQ(set->read(1, 0).token_S, ids("4567"));
  EXPECT_EQ(set->read(1, 0).token_label_S, ids("5678"));
  write("v", "012345678");
  EXPECT_EQ(open(Split::kValid)->size(), 2);
  write("v", "01234567");
  EXPECT_EQ(open(Split::kValid)->size(), 1);
}

TEST_F(Text, ScoresOnlyTheLastTokensOfStridedWindows) {
  write("v", "0123456789");
  context_.evaluation_stride = 2;
  const auto set = open(Split::kValid);
  ASSERT_EQ(set->size(), 3);
  EXPECT_EQ(set->read(0, 0).token_label_S, ids("1234"));
  EXPECT_EQ(set->read(1, 0).token_S, ids("2345"));
  EXPECT_THAT(set->read(1, 0).token_label_S, ElementsAre(kNoLabel, kNoLabel, '5', '6'));
  EXPECT_EQ(set->read(2, 0).token_S, ids("4567"));
  EXPECT_THAT(set->read(2, 0).token_label_S, ElementsAre(kNoLabel, kNoLabel, '7', '8'));
  context_.evaluation_stride = 4;
  EXPECT_EQ(open(Split::kValid)->read(1, 0).token_label_S, ids("5678"));
  context_.evaluation_stride = 1;
  EXPECT_EQ(open(Split::kValid)->size(), 6);
}

TEST_F(Text, TilesAnEpochFromAKeyedOffsetOn) {
  write("t", "0123456789");
  const auto set = open(Split::kTrain);
  ASSERT_EQ(set->size(), 1);
  std::set<int64_t> offsets;
  for (int64_t epoch = 0; epoch < 100; ++epoch) {
    const Sample sample = set->read(0, epoch);
    const int64_t offset = sample.token_S[0] - '0';
    offsets.insert(offset);
    const std::string stream = "0123456789";
    EXPECT_EQ(sample.token_S, ids(stream.substr(offset, 4)));
    EXPECT_EQ(sample.token_label_S, ids(stream.substr(offset + 1, 4)));
    EXPECT_EQ(open(Split::kTrain)->read(0, epoch).token_S, sample.token_S);
  }
  EXPECT_THAT(offsets, ElementsAre(0, 1, 2, 3));
}

TEST_F(Text, LabelsEachTokenOnceInAnEpoch) {
  Tokens stream(1003);
  for (size_t i = 0; i < stream.size(); ++i) stream[i] = static_cast<int64_t>(i % 512);
  options_.train.files = {"t.bin"};
  options_.sequence = 16;
  options_.tokenizer = Choice<Tokenizer>("test_lines");  // of 512 ids
  write_cache("t.bin", stream);
  const auto set = open(Split::kTrain);
  ASSERT_EQ(set->size(), 61);  // 1003 / 16 - 1
  std::set<int64_t> offsets;
  for (int64_t epoch = 0; epoch < 300; ++epoch) {
    Tokens labels;
    for (int64_t i = 0; i < set->size(); ++i) {
      const Sample sample = set->read(i, epoch);
      EXPECT_EQ(sample.token_label_S[0], (sample.token_S[0] + 1) % 512);
      labels.insert(labels.end(), sample.token_label_S.begin(), sample.token_label_S.end());
    }
    offsets.insert(labels[0] - 1);
    EXPECT_TRUE(std::equal(labels.begin(), labels.end(), stream.begin() + labels[0]));
  }
  EXPECT_EQ(offsets.size(), 16u);
  EXPECT_EQ(*offsets.rbegin(), 15);
}

TEST_F(Text, DrawsOffsetsByTheSeed) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i);
  write("t", text);
  options_.sequence = 64;
  const auto first = [&](uint64_t seed) {
    context_.seed = seed;
    const auto set = open(Split::kTrain);
    Tokens offsets;
    for (int64_t epoch = 0; epoch < 10; ++epoch) offsets.push_back(set->read(0, epoch).token_S[0]);
    return offsets;
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
}

TEST_F(Text, HasOneWindowOfAShortStream) {
  write("t", "012345");
  const auto set = open(Split::kTrain);
  ASSERT_EQ(set->size(), 1);
  std::set<int64_t> firsts;
  for (int64_t epoch = 0; epoch < 50; ++epoch) firsts.insert(set->read(0, epoch).token_S[0] - '0');
  EXPECT_THAT(firsts, ElementsAre(0, 1));
  write("t", "01234");
  EXPECT_EQ(open(Split::kTrain)->read(0, 7).token_label_S, ids("1234"));
}

TEST_F(Text, JoinsFilesAndCachesToOneStream) {
  write("a", "01");
  write("empty", "");
  write_cache("b.bin", ids("23456"), "bytes");
  write("c", "789");
  options_.valid.files = {"a", "empty", "b.bin", "c"};
  const auto set = open(Split::kValid);
  ASSERT_EQ(set->size(), 2);
  EXPECT_EQ(set->read(0, 0).token_S, ids("0123"));
  EXPECT_EQ(set->read(1, 0).token_S, ids("4567"));
  EXPECT_EQ(set->read(1, 0).token_label_S, ids("5678"));
}

TEST_F(Text, CountsTokensBytesAndWords) {
  write("v", "one two\nthree ");
  EXPECT_EQ(open(Split::kValid)->text_counts()->tokens, 14);
  EXPECT_EQ(open(Split::kValid)->text_counts()->bytes, 14);
  EXPECT_EQ(open(Split::kValid)->text_counts()->words, 3);
  write_cache("b.bin", ids("23456"), "bytes");
  options_.valid.files = {"v", "b.bin"};
  EXPECT_EQ(open(Split::kValid)->text_counts()->tokens, 19);
  EXPECT_EQ(open(Split::kValid)->text_counts()->bytes, 84);
  EXPECT_EQ(open(Split::kValid)->text_counts()->words, 14);
  write_cache("b.bin", ids("23456"));  // whose text is not known
  EXPECT_EQ(open(Split::kValid)->text_counts()->tokens, 19);
  EXPECT_EQ(open(Split::kValid)->text_counts()->bytes, 0);
  EXPECT_EQ(open(Split::kValid)->text_counts()->words, 0);
}

TEST_F(Text, IsTokenisedOnceIntoTheCacheFolder) {
  options_.tokenizer = Choice<Tokenizer>("test_lines");
  context_.cache_folder = scratch_.file("cache");
  write("v", "ab\ncd\n");
  const auto first = open(Split::kValid);
  EXPECT_THAT(first->read(0, 0).token_S, ElementsAre('a' + 256, 'b', '\n', 'c' + 256));
  EXPECT_THAT(first->notes(), ElementsAre(AllOf(HasSubstr("tokenised"), HasSubstr("/v (6 bytes"),
                                                HasSubstr("cache/tokens/"))));
  EXPECT_EQ(first->text_counts()->words, 2);
  EXPECT_EQ(first->tokenizer_identity(), "lines");
  EXPECT_THAT(open(Split::kValid)->notes(), ElementsAre(HasSubstr("from the cache")));
  EXPECT_THAT(open(Split::kValid)->fingerprint(),
              AllOf(HasSubstr("v 6 "), HasSubstr(", tokens 1036 "), HasSubstr(", vocabulary 512"),
                    HasSubstr("tokenizer lines")));
}

TEST_F(Text, NotesACacheWithoutASideFileAndTellsItsVocabulary) {
  options_.valid.files = {"v.bin"};
  write_cache("v.bin", ids("0123456789"));
  EXPECT_THAT(open(Split::kValid)->notes(),
              ElementsAre(AllOf(HasSubstr("v.bin: no side file"), HasSubstr("is not checked"))));
  EXPECT_EQ(open(Split::kValid)->tokenizer_identity(), "");
  const std::string bytes = open(Split::kValid)->fingerprint();
  EXPECT_THAT(bytes, HasSubstr(", vocabulary 256"));
  options_.tokenizer = Choice<Tokenizer>("test_lines");
  EXPECT_NE(open(Split::kValid)->fingerprint(), bytes);
  write_cache("v.bin", ids("0123456789"), "lines");
  EXPECT_THAT(open(Split::kValid)->notes(), ElementsAre());
}

TEST_F(Text, NeedsNoCacheFolderForBytesAndNamesItOtherwise) {
  write("v", "ab\ncd\n");
  EXPECT_THAT(open(Split::kValid)->notes(), ElementsAre());
  options_.tokenizer = Choice<Tokenizer>("test_lines");
  EXPECT_THAT(problem(), AllOf(HasSubstr("/v: there is no folder"), HasSubstr("XDG_CACHE_HOME")));
}

TEST_F(Text, RefusesWhatItCannotReadByName) {
  EXPECT_THAT(problem(), HasSubstr("no 'v' in"));
  write("v", "0123");
  EXPECT_THAT(problem(), AllOf(HasSubstr("/v: 4 tokens, a sample needs 5")));
  options_.valid.files = {"v.bin"};
  write_cache("v.bin", {1, 2, 3, 4, 5, 300});
  EXPECT_THAT(problem(), HasSubstr("v.bin: token 5 (byte 1034) has id 300, must be below"));
  // Damaged, beside a side file that is not.
  write_cache("v.bin", {1, 2, 3, 4, 5, 300}, "bytes");
  EXPECT_THAT(problem(), HasSubstr("v.bin: token 5 (byte 1034) has id 300, must be below"));
  write_cache("v.bin", {1, 2, 3, 4, 5, 6}, "gpt2 of elsewhere");
  EXPECT_THAT(problem(), AllOf(HasSubstr("v.bin: a cache of another tokenizer"),
                               HasSubstr("'gpt2 of elsewhere'"), HasSubstr("'bytes'")));
  fs::resize_file(scratch_.file("v.bin"), 1030);
  EXPECT_THAT(problem(), HasSubstr("v.bin: cut short"));
  options_.valid.files = {"w"};
  options_.tokenizer = Choice<Tokenizer>("test_lines");
  context_.cache_folder = scratch_.file("cache");
  write("w", "abc\xff");
  EXPECT_THAT(problem(), HasSubstr("/w: byte 3: 0xff"));
}

TEST_F(Text, RefusesATokenizerOfAnotherSizeThanTheModels) {
  write("vocab.json", testing::vocab_json({}));
  write("merges.txt", "");
  const Gpt2Tokenizer::Options gpt2{scratch_.file("vocab.json"), scratch_.file("merges.txt")};
  options_.tokenizer = Choice<Tokenizer>("gpt2", gpt2);
  context_.cache_folder = scratch_.file("cache");
  write("v", "0123456789");
  const std::string expected = "its files have 256 tokens, and the model is made for 50257";
  EXPECT_THAT(problem(), HasSubstr(expected));
  try {
    TextSource(options_, context_).tokenizer();
    FAIL() << "made";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr(expected));
    EXPECT_EQ(error.hint(), "set data.tokenizer.vocabulary=256");
  }
}

class TextDocuments : public Text {
 protected:
  TextDocuments() {
    write("vocab.json", testing::vocab_json({"<|endoftext|>"}));
    write("merges.txt", "");
    options_.tokenizer = Choice<Tokenizer>(
        "gpt2",
        Gpt2Tokenizer::Options{scratch_.file("vocab.json"), scratch_.file("merges.txt"), 257});
    context_.cache_folder = scratch_.file("cache");
  }
  /// All tokens of the validation split, as text; "|" ends a document.
  std::string tokens() {
    options_.sequence = 1;
    const auto set = open(Split::kValid);
    std::string text;
    for (int64_t i = 0; i <= set->size(); ++i) {
      const int64_t id =
          i < set->size() ? set->read(i, 0).token_S[0] : set->read(i - 1, 0).token_label_S[0];
      text += id == 256 ? '|' : static_cast<char>(id);
    }
    return text;
  }
};

TEST_F(TextDocuments, AreFilesOrLinesAndEachIsEnded) {
  write("v", "ab");
  write("w", "c");
  options_.valid.files = {"v", "w"};
  EXPECT_EQ(tokens(), "abc");
  options_.format.documents = Documents::kFiles;
  EXPECT_EQ(tokens(), "ab|c|");
  write("v", "{\"text\": \"ab\"}\n{\"text\": \"d\"}\n");
  write("w", "{\"text\": \"c\"}");
  options_.format.documents = Documents::kLines;
  EXPECT_EQ(tokens(), "ab|d|c|");
  write("w", "c");
  EXPECT_THAT(problem(), HasSubstr("/w:1: not a JSON object"));
}

TEST_F(TextDocuments, OfCachesAreThoseTheyWereMadeWith) {
  options_.valid.files = {"v.bin"};
  write_cache("v.bin", {97, 256, 98, 256, 99, 99, 99},
              TextSource(options_, context_).tokenizer()->identity());
  EXPECT_EQ(tokens(), "a|b|ccc");
  options_.format.documents = Documents::kLines;
  EXPECT_THAT(problem(), HasSubstr("v.bin: a cache that was not made with --documents lines"));
}

TEST_F(TextDocuments, SpecialTokensAreRefusedUnlessTheRecipeSaysWhatTheyAre) {
  write("v", "ab<|endoftext|>c");
  EXPECT_THAT(problem(), HasSubstr("/v: byte 2: the special token <|endoftext|>"));
  EXPECT_THROW(
      {
        std::vector<int64_t> ids;
        TextSource(options_, context_).tokenizer()->encode("<|endoftext|>", ids);
      },
      BadText);
  options_.format.special_tokens = SpecialTokens::kEncode;
  EXPECT_EQ(tokens(), "ab|c");
  options_.format.special_tokens = SpecialTokens::kText;
  EXPECT_EQ(tokens(), "ab<|endoftext|>c");
}

TEST_F(Text, OpensOnlyTheSplitAskedFor) {
  write("v", "0123456789");
  EXPECT_EQ(open(Split::kValid)->size(), 2);
  EXPECT_THROW(open(Split::kTrain), DataError);
}

TEST_F(Text, TellsItsShapeWithoutOpeningAnything) {
  const DataShape shape = TextSource(options_, context_).shape();
  EXPECT_EQ(shape.sequence, 4);
  EXPECT_EQ(shape.vocabulary, 256);
  EXPECT_EQ(shape.token_labels, 4);
  EXPECT_FALSE(shape.has_lengths);
  EXPECT_EQ(shape.text(), "4 labelled tokens of a vocabulary of 256");
}

TEST(TextOptions, ReadRecipesAndPointAtMistakes) {
  const auto read = [](const std::string& text) {
    return config::load_options_text<DataOptions>(text, "r.yaml").options;
  };
  const DataOptions data = read(
      "source: text\n"
      "path: some/folder\n"
      "tokenizer: {name: bytes}\n"
      "sequence: 256\n"
      "train: {files: [a.txt, b.bin]}\n"
      "valid: {files: [c.txt]}\n");
  const auto& options = data.source.options<TextSource>();
  EXPECT_THAT(options.paths(Split::kTrain), ElementsAre("some/folder/a.txt", "some/folder/b.bin"));
  EXPECT_EQ(options.sequence, 256);
  EXPECT_EQ(options.tokenizer.name(), "bytes");
  const auto mistakes = testing::mistakes_of([&] {
    read(
        "source: text\n"
        "tokenizer: {name: letters}\n"
        "valid: {files: []}\n");
  });
  EXPECT_THAT(mistakes, UnorderedElementsAre(HasSubstr("r.yaml:2:"), HasSubstr("train.files"),
                                             HasSubstr("r.yaml:3:")));
  const auto twice = testing::mistakes_of([&] {
    read(
        "source: text\n"
        "train: {files: [a, ./a]}\n"
        "valid: {files: [b]}\n");
  });
  EXPECT_THAT(twice, ElementsAre(AllOf(HasSubstr("train.files"), HasSubstr("a is named twice"))));
  const auto bytes = testing::mistakes_of([&] {
    read(
        "source: text\n"
        "documents: lines\n"
        "special_tokens: encode\n"
        "train: {files: [a]}\n"
        "valid: {files: [b]}\n");
  });
  EXPECT_THAT(bytes, UnorderedElementsAre(HasSubstr("r.yaml:2:"), HasSubstr("r.yaml:3:")));
}

TEST(TextWikiText2Data, IsReadAsBytes) {
  const char* folder = std::getenv("WIKITEXT2");
  ASSERT_NE(folder, nullptr) << "WIKITEXT2 names the folder of WikiText-2";
  TextSource::Options options;
  options.path = folder;
  options.sequence = 256;
  options.train.files = {"wiki.train.tokens"};
  options.valid.files = {"wiki.valid.tokens"};
  const auto valid = TextSource(options, {}).open(Split::kValid);
  EXPECT_EQ(valid->text_counts()->bytes, 1'121'681);
  EXPECT_EQ(valid->text_counts()->tokens, 1'121'681);
  EXPECT_EQ(valid->text_counts()->words, 213'886);  // as wc counts them
  EXPECT_EQ(valid->size(), 4381);
}

TEST_F(Text, RefusesToTrainAndEvaluateOnOneFile) {
  options_.valid.files = {"v", "./t"};
  EXPECT_THAT(testing::training_mistakes_of(TextSource(options_, context_)),
              ElementsAre(AllOf(HasSubstr("valid.files: "), HasSubstr("/t is"))));
}

TEST_F(Text, IsTheSameForAnyNumberOfWorkersAndRanks) {
  std::string text;
  for (int i = 0; i < 999; ++i) text += static_cast<char>('a' + i * i % 23);
  write("t", text);
  const auto set = open(Split::kTrain);
  const auto batches = [&](int64_t workers, int64_t rank, int64_t world) {
    LoaderSettings settings;
    settings.cut = {.batch = 32, .accumulate = 1, .group = 4};
    settings.rank = rank;
    settings.world = world;
    settings.workers = workers;
    settings.shape = TextSource(options_, context_).shape();
    TrainLoader loader(*set, settings);
    std::vector<torch::Tensor> rows;
    for (int step = 0; step < 20; ++step) {  // more than two epochs
      const Batch batch = loader.next();
      EXPECT_TRUE(torch::equal(batch.context.token_bS, batch.token_bS));
      rows.push_back(torch::cat({batch.token_bS, batch.token_label_bS}, 1));
    }
    return rows;
  };
  const auto one = batches(1, 0, 1), many = batches(4, 0, 1);
  const auto left = batches(1, 0, 2), right = batches(3, 1, 2);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(torch::equal(one[i], many[i]));
    EXPECT_TRUE(torch::equal(one[i], torch::cat({left[i], right[i]})));
  }
}

}  // namespace
}  // namespace shoal
