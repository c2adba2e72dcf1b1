#include "runtime/text/gpt2_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/utf8.h"
#include "tests/support/draws.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/small_bpe.h"

namespace shoal {
namespace {

using testing::BytePairs;
using testing::Draws;
using testing::merges_text;
using testing::results_of;
using testing::vocab_json;

BpeVocabulary vocabulary_of(const BytePairs& pairs) {
  BpeVocabulary vocabulary;
  std::vector<std::string> results;
  // Two pairs may make one token.
  for (const std::string& result : results_of(pairs)) {
    if (std::find(results.begin(), results.end(), result) == results.end()) {
      results.push_back(result);
    }
  }
  vocabulary.tokens = parse_bpe_tokens(vocab_json(results), "vocab");
  vocabulary.merges = parse_bpe_merges(merges_text(pairs), vocabulary.tokens, "merges");
  return vocabulary;
}

std::vector<int64_t> ids_of(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int64_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

/// The tokens' bytes with bars between them.
std::string pieces_of(const Tokenizer& tokenizer, const std::string& text) {
  std::string pieces;
  for (const int64_t id : ids_of(tokenizer, text)) {
    pieces += (pieces.empty() ? "" : "|") + std::string(tokenizer.bytes_of(id));
  }
  return pieces;
}

TEST(Gpt2Tokenizer, AppliesMergesInTheirOrder) {
  const Gpt2Tokenizer tokenizer(
      vocabulary_of({{"b", "c"}, {"a", "b"}, {"bc", "d"}, {"a", "bcd"}, {" ", "a"}}));
  EXPECT_EQ(pieces_of(tokenizer, "ab"), "ab");
  EXPECT_EQ(pieces_of(tokenizer, "abc"), "a|bc");
  EXPECT_EQ(pieces_of(tokenizer, "abcd"), "abcd");
  EXPECT_EQ(pieces_of(tokenizer, "abab abcd"), "ab|ab| |abcd");
  EXPECT_EQ(pieces_of(tokenizer, " a"), " a");
  EXPECT_EQ(ids_of(tokenizer, "abcdz"), (std::vector<int64_t>{259, 'z'}));
}

TEST(Gpt2Tokenizer, MergesFromTheLeft) {
  const Gpt2Tokenizer tokenizer(vocabulary_of({{"a", "a"}, {"aa", "aa"}}));
  EXPECT_EQ(pieces_of(tokenizer, "aaa"), "aa|a");
  EXPECT_EQ(pieces_of(tokenizer, "aaaaaaa"), "aaaa|aa|a");
}

TEST(Gpt2Tokenizer, MergesNothingAcrossWords) {
  const Gpt2Tokenizer tokenizer(vocabulary_of({{"a", "1"}, {"'", "t"}, {"n", "'t"}, {" ", " "}}));
  EXPECT_EQ(pieces_of(tokenizer, "a1"), "a|1");
  EXPECT_EQ(pieces_of(tokenizer, "n't"), "n|'t");
  EXPECT_EQ(pieces_of(tokenizer, "n   t"), "n|  | |t");
}

TEST(Gpt2Tokenizer, TakesEndOfTextForTextInText) {
  BpeVocabulary vocabulary = vocabulary_of({{"e", "n"}});
  EXPECT_EQ(Gpt2Tokenizer(vocabulary).end_of_text(), -1);
  vocabulary.tokens.emplace_back("<|endoftext|>");
  const Gpt2Tokenizer tokenizer(vocabulary);
  EXPECT_EQ(tokenizer.end_of_text(), 257);
  EXPECT_EQ(pieces_of(tokenizer, "<|endoftext|>"), "<|||en|d|o|f|t|e|x|t|||>");
  EXPECT_EQ(tokenizer.bytes_of(257), "<|endoftext|>");
}

BpeVocabulary with_special_tokens() {
  BpeVocabulary vocabulary = vocabulary_of({{"a", "b"}, {" ", "a"}, {"|", ">"}, {"<", "|"}});
  for (const char* token : {"<|endoftext|>", "<|user|>"}) vocabulary.tokens.emplace_back(token);
  return vocabulary;
}

TEST(Gpt2Tokenizer, EncodesSpecialTokensAsTheirIds) {
  const Gpt2Tokenizer tokenizer(with_special_tokens(), SpecialTokens::kEncode);
  const Gpt2Tokenizer plain(with_special_tokens());
  EXPECT_EQ(pieces_of(tokenizer, "ab<|endoftext|> ab<|user|><|endoftext|>"),
            "ab|<|endoftext|>| |ab|<|user|>|<|endoftext|>");
  EXPECT_EQ(pieces_of(tokenizer, "<<|endoftext|>"), "<|<|endoftext|>");
  for (const char* text : {"", "ab <|", "<|endoftext|", "<|endoftext", "<||>", "|>", "<| user|>"}) {
    EXPECT_EQ(ids_of(tokenizer, text), ids_of(plain, text)) << text;
  }
  EXPECT_EQ(tokenizer.special_tokens(), "encode");
  EXPECT_EQ(plain.special_tokens(), "");
  EXPECT_EQ(tokenizer.identity(), plain.identity());
  EXPECT_NE(tokenizer.cache_identity(), plain.cache_identity());
}

TEST(Gpt2Tokenizer, RefusesSpecialTokensIfTold) {
  const Gpt2Tokenizer tokenizer(with_special_tokens(), SpecialTokens::kError);
  EXPECT_EQ(pieces_of(tokenizer, "ab <|endoftext"), "ab| |<||e|n|d|o|f|t|e|x|t");
  std::vector<int64_t> ids{1};
  try {
    tokenizer.encode("ab ab<|user|> <|endoftext|>", ids);
    FAIL() << "taken";
  } catch (const BadText& error) {
    EXPECT_EQ(error.offset(), 5u);
    EXPECT_EQ(error.problem(), "the special token <|user|>");
    EXPECT_NE(error.hint().find("data.special_tokens"), std::string::npos) << error.hint();
  }
  EXPECT_EQ(ids, (std::vector<int64_t>{1}));
}

/// Text arrives byte by byte, and all that may be encoded is encoded at once.
TEST(Gpt2Tokenizer, EncodesPiecesWithSpecialTokensAsTheWhole) {
  const Gpt2Tokenizer tokenizer(with_special_tokens(), SpecialTokens::kEncode);
  Draws draws(5);
  const std::vector<std::string> parts{"ab", " ", "<|endoftext|>", "<|user|>", "<|", "user",
                                       "|>", "<", "b b ab ",       "é"};
  for (int i = 0; i < 200; ++i) {
    std::string text, held;
    for (int part = 0; part < 12; ++part) text += parts[draws.below(parts.size())];
    std::vector<int64_t> ids;
    for (const char c : text) {
      held += c;
      const size_t length = tokenizer.complete_prefix(held);
      if (length > 0 && (length < held.size() || check_utf8(held).valid == held.size())) {
        tokenizer.encode(held.substr(0, length), ids);
        held.erase(0, length);
      }
    }
    tokenizer.encode(held, ids);
    EXPECT_EQ(ids, ids_of(tokenizer, text)) << text;
  }
}

TEST(Gpt2Tokenizer, NamesTheByteThatIsNoUtf8) {
  const Gpt2Tokenizer tokenizer(vocabulary_of({}));
  for (const auto& [text, offset] : std::vector<std::pair<std::string, size_t>>{
           {"\xED\xA0\x80", 0}, {"é \xED\xBF\xBF", 3}, {"ab\xFF", 2}, {"ab\xE2\x82", 2}}) {
    std::vector<int64_t> ids{1, 2};
    try {
      tokenizer.encode(text, ids);
      ADD_FAILURE() << "taken";
    } catch (const BadText& error) {
      EXPECT_EQ(error.offset(), offset);
      EXPECT_EQ(error.code(), ExitCode::kData);
      EXPECT_NE(error.problem().find("not UTF-8"), std::string::npos) << error.problem();
    }
    EXPECT_EQ(ids, (std::vector<int64_t>{1, 2}));
  }
}

/// Merges of random tokens of a few letters, parts before wholes; none twice.
BytePairs random_merges(Draws& draws) {
  std::vector<std::string> tokens{"a", "b", "c"};
  std::set<std::pair<std::string, std::string>> seen;
  BytePairs pairs;
  for (int i = 0; i < 25; ++i) {
    std::pair pair(tokens[draws.below(tokens.size())], tokens[draws.below(tokens.size())]);
    if (!seen.insert(pair).second) continue;
    const std::string result = pair.first + pair.second;
    if (std::find(tokens.begin(), tokens.end(), result) == tokens.end()) tokens.push_back(result);
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

/// Merges as OpenAI's encoder.py does: the first merge that applies, at all of its places, until
/// none does.
std::vector<std::string> merge_plainly(const BytePairs& merges, const std::string& word) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  const auto applies = [&](const auto& merge, size_t i) {
    return i + 1 < parts.size() && parts[i] == merge.first && parts[i + 1] == merge.second;
  };
  for (auto merge = merges.begin(); merge != merges.end();) {
    bool has_applied = false;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!applies(*merge, i)) continue;
      parts[i] += parts[i + 1];
      parts.erase(parts.begin() + static_cast<int64_t>(i) + 1);
      has_applied = true;
    }
    merge = has_applied ? merges.begin() : merge + 1;
  }
  return parts;
}

TEST(Gpt2Tokenizer, MergesAsThePlainAlgorithm) {
  size_t merged = 0;
  for (uint64_t number = 0; number < 300; ++number) {
    Draws draws(number);
    const BytePairs merges = random_merges(draws);
    const Gpt2Tokenizer tokenizer(vocabulary_of(merges));
    for (int i = 0; i < 10; ++i) {
      std::string word(1 + draws.below(60), ' ');
      for (char& c : word) c = static_cast<char>('a' + draws.below(3));
      std::vector<std::string> found;
      for (const int64_t id : ids_of(tokenizer, word)) found.emplace_back(tokenizer.bytes_of(id));
      ASSERT_EQ(found, merge_plainly(merges, word)) << number << " " << word;
      merged += word.size() - found.size();
    }
  }
  EXPECT_GT(merged, 10'000u);
}

TEST(Gpt2Tokenizer, TakesAWordOfAMillionBytes) {
  // Quadratic steps would take hours.
  const Gpt2Tokenizer tokenizer(
      vocabulary_of({{"a", "b"}, {"ab", "a"}, {"b", "b"}, {"ab", "ab"}, {"abab", "abab"}}));
  Draws draws(0);
  std::string word(1'000'000, ' ');
  for (char& c : word) c = static_cast<char>('a' + draws.below(2));
  const std::vector<int64_t> ids = ids_of(tokenizer, word);
  EXPECT_LT(ids.size(), word.size() * 3 / 4);
  EXPECT_EQ(tokenizer.decode(ids), word);
}

std::string random_text(Draws& draws) {
  const std::vector<std::string> pieces{
      "a", "b", "ab", " ", "  ",     "\n",     "'s",   "'",
      "é", "😀", "1",  "!", "\u00A0", "\u0301", "\r\n", std::string(1, '\0')};
  std::string text;
  for (size_t left = draws.below(60); left > 0; --left) text += pieces[draws.below(pieces.size())];
  return text;
}

TEST(Gpt2Tokenizer, DecodesWhatItEncodedAndEncodesPiecesAsTheWhole) {
  const Gpt2Tokenizer tokenizer(vocabulary_of({{" ", " "},
                                               {" ", "a"},
                                               {"a", "b"},
                                               {"'", "s"},
                                               {"\xC3", "\xA9"},
                                               {" ", "\xC3\xA9"},
                                               {"\n", "\n"},
                                               {"  ", "  "}}));
  for (uint64_t number = 0; number < 2'000; ++number) {
    Draws draws(number);
    const std::string text = random_text(draws);
    const std::vector<int64_t> whole = ids_of(tokenizer, text);
    EXPECT_EQ(tokenizer.decode(whole), text);
    std::vector<int64_t> pieces;
    std::string waiting;
    for (size_t at = 0; at < text.size();) {
      const size_t count = std::min(1 + draws.below(20), text.size() - at);
      waiting += text.substr(at, count);
      at += count;
      const size_t ready = tokenizer.complete_prefix(waiting);
      tokenizer.encode(waiting.substr(0, ready), pieces);
      waiting.erase(0, ready);
    }
    tokenizer.encode(waiting, pieces);
    ASSERT_EQ(pieces, whole) << text;
  }
}

TEST(Gpt2Tokenizer, EncodesOnSeveralThreadsAtOnce) {
  const Gpt2Tokenizer tokenizer(vocabulary_of({{"a", "b"}, {" ", "ab"}, {" ", " "}}));
  Draws draws(0);
  std::string text;
  for (int i = 0; i < 200; ++i) text += random_text(draws);
  const std::vector<int64_t> expected = ids_of(tokenizer, text);
  std::vector<std::vector<int64_t>> found(4);
  std::vector<std::thread> threads;
  for (auto& ids : found) threads.emplace_back([&] { tokenizer.encode(text, ids); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& ids : found) EXPECT_EQ(ids, expected);
}

TEST(Gpt2Tokenizer, IsKnownByItsFilesContents) {
  const testing::ScratchFolder folder;
  const BytePairs pairs{{"a", "b"}, {" ", "ab"}};
  testing::write_file(folder.file("encoder.json"), vocab_json(results_of(pairs)));
  testing::write_file(folder.file("vocab.bpe"), merges_text(pairs));
  // As other tools write the same: new lines in the JSON, letters escaped; no version, CRLF.
  std::string json = vocab_json(results_of(pairs));
  json.replace(json.find("\"Ġab\""), 6, "\n\"\\u0120ab\"");
  testing::write_file(folder.file("vocab.json"), json);
  testing::write_file(folder.file("merges.txt"), "a b\r\nĠ ab\r\n");
  const auto create = [&](const std::string& vocab, const std::string& merges) {
    const Gpt2Tokenizer::Options options{folder.file(vocab), folder.file(merges)};
    return Registry<Tokenizer>::create({"gpt2", options}, {});
  };
  const auto openai = create("encoder.json", "vocab.bpe");
  const auto hugging_face = create("vocab.json", "merges.txt");
  EXPECT_EQ(pieces_of(*openai, "ab ab"), "ab| ab");
  EXPECT_EQ(openai->identity(), hugging_face->identity());
  EXPECT_EQ(openai->identity().size(), std::string("gpt2:").size() + 64);
  EXPECT_EQ(openai->vocabulary(), 258);
  testing::write_file(folder.file("merges.txt"), "a b\n");
  EXPECT_NE(openai->identity(), create("vocab.json", "merges.txt")->identity());
  EXPECT_THROW(openai->bytes_of(258), std::out_of_range);
  EXPECT_THROW(openai->bytes_of(-1), std::out_of_range);
}

TEST(Gpt2Tokenizer, HasTheVocabularyThatTheRecipeNames) {
  const testing::ScratchFolder folder;
  testing::write_file(folder.file("vocab"), vocab_json({"ab"}));
  testing::write_file(folder.file("merges"), "a b\n");
  Gpt2Tokenizer::Options options{folder.file("vocab"), folder.file("merges")};
  EXPECT_EQ(Gpt2Tokenizer(options).vocabulary(), 257);
  const Gpt2Tokenizer unread(options, {.reads_files = false});
  EXPECT_EQ(unread.vocabulary(), 50257);
  std::vector<int64_t> ids;
  EXPECT_THROW(unread.encode("a", ids), std::logic_error);
  options.vocabulary = 257;
  EXPECT_EQ(Gpt2Tokenizer(options).vocabulary(), 257);
  options.vocabulary = 300;
  EXPECT_THROW(Gpt2Tokenizer{options}, DataError);
  EXPECT_EQ(Gpt2Tokenizer(options, {.reads_files = false}).vocabulary(), 300);
}

TEST(Gpt2Tokenizer, NamesItsCachesAfterTheVersionOfUnicode) {
  const Gpt2Tokenizer tokenizer(vocabulary_of({}));
  EXPECT_EQ(tokenizer.cache_identity(), tokenizer.identity() + " unicode " + unicode_version());
  EXPECT_GE(std::stod(unicode_version()), 10.0);
}

}  // namespace
}  // namespace shoal
