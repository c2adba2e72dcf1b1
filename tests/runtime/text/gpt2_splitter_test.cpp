#include "runtime/text/gpt2_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/draws.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> words_of(const Gpt2Splitter& splitter, std::string_view text) {
  std::vector<std::string> found;
  Gpt2Splitter::Words words(splitter, text);
  for (std::string_view word; words.next(word);) found.emplace_back(word);
  return found;
}

std::vector<std::string> split(std::string_view text) { return words_of(Gpt2Splitter(), text); }

TEST(Gpt2Splitter, CutsTextIntoWords) {
  EXPECT_THAT(split(""), IsEmpty());
  EXPECT_THAT(split("Hello world, it's 3pm!"),
              ElementsAre("Hello", " world", ",", " it", "'s", " 3", "pm", "!"));
  EXPECT_THAT(
      split("don't we'll I've you're I'm he'd"),
      ElementsAre("don", "'t", " we", "'ll", " I", "'ve", " you", "'re", " I", "'m", " he", "'d"));
  // Contractions are lower-case, and go before the word behind them.
  EXPECT_THAT(split("DON'T 'tis '"), ElementsAre("DON", "'", "T", " '", "tis", " '"));
  EXPECT_THAT(split("a_b-c++"), ElementsAre("a", "_", "b", "-", "c", "++"));
}

TEST(Gpt2Splitter, GivesTheLastOfSeveralSpacesToTheNextWord) {
  EXPECT_THAT(split("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(split("a \n b"), ElementsAre("a", " \n", " b"));
  EXPECT_THAT(split("a\n\nb"), ElementsAre("a", "\n", "\n", "b"));
  EXPECT_THAT(split("a\r\nb"), ElementsAre("a", "\r", "\n", "b"));
  EXPECT_THAT(split("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(split("   "), ElementsAre("   "));
}

TEST(Gpt2Splitter, KnowsLettersNumbersAndSpacesOfUnicode) {
  EXPECT_THAT(split("é日本 ٣٤x"), ElementsAre("é日本", " ٣٤", "x"));
  // A combining mark is no letter.
  EXPECT_THAT(split("e\u0301a"), ElementsAre("e", "\u0301", "a"));
  EXPECT_THAT(split("a\u00A0b"), ElementsAre("a", "\u00A0", "b"));
  EXPECT_THAT(split("a\u2003\u3000b"), ElementsAre("a", "\u2003", "\u3000", "b"));
  // No spaces in Unicode: the Mongolian vowel separator, of which PCRE2 thinks otherwise, and the
  // one of no width.
  EXPECT_THAT(split("a\u180E\u200Bb"), ElementsAre("a", "\u180E\u200B", "b"));
}

TEST(Gpt2Splitter, TakesWordsOfAMillionBytes) {
  const Gpt2Splitter splitter;
  for (const std::string one : {"a", "7", "!", " ", "é", "'"}) {
    std::string text;
    for (int i = 0; i < 1'000'000; ++i) text += one;
    EXPECT_EQ(words_of(splitter, text).size(), 1u) << one;
    EXPECT_EQ(splitter.last_cut(text), 0u) << one;
  }
}

TEST(Gpt2Splitter, CutsWhereNothingBehindMatters) {
  const Gpt2Splitter splitter;
  EXPECT_EQ(splitter.last_cut(""), 0u);
  EXPECT_EQ(splitter.last_cut("word"), 0u);
  EXPECT_EQ(splitter.last_cut("word "), 4u);
  EXPECT_EQ(splitter.last_cut("a   "), 1u);
  EXPECT_EQ(splitter.last_cut("a   b"), 1u);
  EXPECT_EQ(splitter.last_cut("don'"), 3u);
  EXPECT_EQ(splitter.last_cut("don't"), 3u);
  EXPECT_EQ(splitter.last_cut("' 1"), 1u);
  EXPECT_EQ(splitter.last_cut("a1"), 1u);
  // Half a character may become a space or not.
  EXPECT_EQ(splitter.last_cut("a\xC2"), 0u);
  EXPECT_EQ(splitter.last_cut("a\xC2\xA0"), 1u);
  // Farther back than one look goes.
  EXPECT_EQ(splitter.last_cut("a " + std::string(100'000, 'b')), 1u);
}

TEST(Gpt2Splitter, TakesTextThatIsNoUtf8ForComplete) {
  const Gpt2Splitter splitter;
  EXPECT_EQ(splitter.last_cut("a\xFF"), 2u);
  EXPECT_EQ(splitter.last_cut("a\xED\xA0\x80"), 4u);
  EXPECT_EQ(splitter.last_cut(std::string(100, '\x80')), 100u);
}

/// Text that is rich in what makes cuts hard.
std::string hard_text(testing::Draws& draws) {
  constexpr std::array<std::string_view, 24> kPieces{
      " ",    " ",      "  ",     "\n",     "\r\n", "\t", "'", "'s", "'re", "s",  "ll", "e",
      "word", "\u00A0", "\u3000", "\u0301", "é",    "日", "1", "٣",  "!",   "-'", "😀",  "\u180E"};
  std::string text;
  for (size_t left = 1 + draws.below(40); left > 0; --left) {
    text += kPieces[draws.below(kPieces.size())];
  }
  return text;
}

TEST(Gpt2Splitter, SplitsPiecesAsTheWhole) {
  const Gpt2Splitter splitter;
  size_t cuts = 0;
  for (uint64_t number = 0; number < 5'000; ++number) {
    testing::Draws draws(number);
    const std::string text = hard_text(draws);
    std::vector<std::string> words;
    std::string waiting;
    for (size_t at = 0; at < text.size();) {
      const size_t count = std::min(1 + draws.below(12), text.size() - at);
      waiting += text.substr(at, count);
      at += count;
      const size_t ready = splitter.last_cut(waiting);
      cuts += ready > 0 ? 1 : 0;
      for (const std::string& word : words_of(splitter, waiting.substr(0, ready))) {
        words.push_back(word);
      }
      waiting.erase(0, ready);
    }
    for (const std::string& word : words_of(splitter, waiting)) words.push_back(word);
    ASSERT_EQ(words, words_of(splitter, text)) << text;
  }
  EXPECT_GT(cuts, 10'000u);
}

}  // namespace
}  // namespace shoal
