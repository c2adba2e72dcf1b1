#include "runtime/text/bpe_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_bpe.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::symbol_of;
using testing::vocab_json;

std::string data_error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

std::string tokens_error(const std::string& json) {
  return data_error_of([&] { parse_bpe_tokens(json, "vocab.json"); });
}

/// The vocabulary of bytes, with `more` put in before its last brace.
std::string bytes_and(const std::string& more) {
  std::string json = vocab_json({});
  json.back() = ',';
  return json + more + "}";
}

std::string merges_error(const std::string& text) {
  const std::vector<std::string> tokens = parse_bpe_tokens(vocab_json({"ab", "abc", "é"}), "v");
  return data_error_of([&] { parse_bpe_merges(text, tokens, "merges.txt"); });
}

TEST(BpeTokens, AreBytesInTheOrderOfTheirIds) {
  const std::vector<std::string> tokens = parse_bpe_tokens(vocab_json({"ab", " \n", "é"}), "v");
  ASSERT_EQ(tokens.size(), 259u);
  for (size_t byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(tokens[byte], std::string(1, static_cast<char>(byte)));
  }
  EXPECT_THAT(std::vector(tokens.begin() + 256, tokens.end()), ElementsAre("ab", " \n", "é"));
}

TEST(BpeTokens, AreWrittenInSymbols) {
  EXPECT_EQ(bytes_of_symbols("ĠtheĊ"), " the\n");
  EXPECT_EQ(bytes_of_symbols("Ã©"), "é");
  EXPECT_EQ(bytes_of_symbols(""), std::nullopt);
  EXPECT_EQ(bytes_of_symbols("a b"), std::nullopt);
  EXPECT_EQ(bytes_of_symbols("a\u0144"), std::nullopt);
  EXPECT_EQ(bytes_of_symbols("日"), std::nullopt);
  EXPECT_EQ(bytes_of_symbols("😀"), std::nullopt);
}

TEST(BpeTokens, NameWhatIsNoVocabulary) {
  EXPECT_THAT(tokens_error(""), HasSubstr("vocab.json: byte 0: not JSON"));
  EXPECT_THAT(tokens_error("{\"a\": 0,}"), HasSubstr("vocab.json: byte 8: not JSON"));
  EXPECT_THAT(tokens_error("{\"a\": 0} x"), HasSubstr("byte 9: not JSON"));
  EXPECT_THAT(tokens_error(std::string("{\"a\": 0}\0", 9)), HasSubstr("byte 8: not JSON"));
  EXPECT_THAT(tokens_error("{\"a\": 0, \"\xED\xA0\x80\": 1}"),
              HasSubstr("vocab.json: byte 10: not UTF-8: 0xED"));
  for (const std::string& text :
       {std::string("[1]"), std::string("7"), std::string("null"), std::string(1'000'000, '[')}) {
    EXPECT_EQ(tokens_error(text), "vocab.json: not an object {token: id}");
  }
  EXPECT_THAT(tokens_error(std::string(kLargestBpeFile + 1, ' ')),
              HasSubstr("more than 16777216 bytes"));
}

TEST(BpeTokens, NameAnIdThatIsNoInteger) {
  for (const char* id :
       {"1.0", "-1", "\"1\"", "[1]", "{\"b\": 1}", "null", "true", "99999999999999999999"}) {
    EXPECT_EQ(tokens_error(std::string("{\"a\": ") + id + "}"),
              "vocab.json: the id of 'a' is not an integer from 0 on");
  }
  EXPECT_EQ(tokens_error("{\"a\": 1e999}"), "vocab.json: a number is too large");
}

TEST(BpeTokens, NameAWrongToken) {
  EXPECT_THAT(tokens_error(bytes_and("\"a\": 256")), HasSubstr("token 'a' appears twice"));
  EXPECT_THAT(tokens_error(bytes_and("\"\": 256")), HasSubstr("token '' is empty"));
  EXPECT_THAT(tokens_error(bytes_and("\"a b\": 256")),
              HasSubstr("token 'a b' has a character that stands for no byte"));
  EXPECT_THAT(tokens_error(bytes_and("\"ab\": 257")),
              HasSubstr("token 'ab' has id 257; ids of 257 tokens are 0 to 256"));
  EXPECT_THAT(tokens_error(bytes_and("\"ab\": 18446744073709551615")),
              HasSubstr("has id 18446744073709551615"));
  EXPECT_THAT(tokens_error(bytes_and("\"ab\": 97")),
              HasSubstr("token 'ab' has id 97, as a token before it"));
  EXPECT_THAT(tokens_error("{\"a\": 0}"), HasSubstr("no token is the single byte 0x00"));
  EXPECT_THAT(tokens_error("{}"), HasSubstr("no token is the single byte 0x00"));
}

TEST(BpeTokens, AreNotMoreThan65536) {
  std::vector<std::string> more;
  for (int i = 0; i < 65'536 - 256; ++i) more.push_back("x" + std::to_string(i));
  EXPECT_EQ(parse_bpe_tokens(vocab_json(more), "v").size(), 65'536u);
  more.emplace_back("one more");
  EXPECT_THAT(tokens_error(vocab_json(more)), HasSubstr("more than 65536 tokens"));
}

TEST(BpeMerges, AreReadInTheirOrder) {
  const std::vector<std::string> tokens = parse_bpe_tokens(vocab_json({"ab", "abc", "é"}), "v");
  for (const std::string text : {"#version: 0.2\na b\nab c\nÃ ©\n", "a b\nab c\nÃ ©",
                                 "#version: 0.2 - made by hand\r\na b\r\nab c\r\nÃ ©\r\n"}) {
    const std::vector<BpeMerge> merges = parse_bpe_merges(text, tokens, "m");
    ASSERT_EQ(merges.size(), 3u);
    EXPECT_EQ(merges[0].left, 'a');
    EXPECT_EQ(merges[0].result, 256);
    EXPECT_EQ(merges[1].left, 256);
    EXPECT_EQ(merges[1].right, 'c');
    EXPECT_EQ(merges[2].result, 258);
  }
  EXPECT_TRUE(parse_bpe_merges("", tokens, "m").empty());
}

TEST(BpeMerges, NameTheLineOfAMistake) {
  EXPECT_EQ(merges_error("#version: 0.2\na b\nab\n"),
            "merges.txt:3: 'ab' is not two tokens with a space between them");
  EXPECT_THAT(merges_error("a b\n\nab c\n"), HasSubstr("merges.txt:2: '' is not two tokens"));
  EXPECT_THAT(merges_error("a b c\n"), HasSubstr("merges.txt:1: 'a b c' is not two tokens"));
  EXPECT_THAT(merges_error(" b\n"), HasSubstr(":1: ' b' is not two tokens"));
  EXPECT_THAT(merges_error("a b\na b\n"), HasSubstr("merges.txt:2: 'a b' appears twice"));
  EXPECT_THAT(merges_error("a b\nzz c\n"), HasSubstr(":2: 'zz' is not in the vocabulary"));
  EXPECT_THAT(merges_error("a 日\n"), HasSubstr(":1: '日' is not in the vocabulary"));
  EXPECT_THAT(merges_error("b a\n"), HasSubstr(":1: 'ba' is not in the vocabulary"));
  EXPECT_THAT(merges_error("ab c\na b\n"),
              HasSubstr(":1: 'ab' is neither a byte nor made by a line before"));
  EXPECT_THAT(merges_error("a b\n#version: 0.2\n"), HasSubstr("'#version:' is not in the"));
  EXPECT_THAT(merges_error("a b\n\xFF"), HasSubstr("merges.txt: byte 4: not UTF-8: 0xFF"));
  EXPECT_THAT(merges_error(std::string(kLargestBpeFile + 1, 'a')), HasSubstr("more than 16777216"));
  EXPECT_LT(merges_error(std::string(1'000'000, 'a')).size(), 200u);
}

TEST(BpeVocabulary, NamesAFileThatCannotBeRead) {
  const testing::ScratchFolder folder;
  testing::write_file(folder.file("vocab.json"), vocab_json({}));
  testing::write_file(folder.file("merges.txt"), "a b\n");
  const auto error = [&](const std::string& vocab, const std::string& merges) {
    return data_error_of([&] { read_bpe_vocabulary(folder.file(vocab), folder.file(merges)); });
  };
  EXPECT_THAT(error("none", "merges.txt"), HasSubstr("no 'none' in"));
  EXPECT_EQ(error("vocab.json", ""), folder.file("") + ": is not a regular file");
  EXPECT_EQ(error("vocab.json", "merges.txt"),
            folder.file("merges.txt") + ":1: 'ab' is not in the vocabulary");
}

}  // namespace
}  // namespace shoal
