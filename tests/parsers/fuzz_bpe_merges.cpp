#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/text/bpe_merger.h"
#include "runtime/text/bpe_vocabulary.h"
#include "runtime/text/gpt2_splitter.h"
#include "tests/support/small_bpe.h"

/// Input: merges, a text and the JSON of a vocabulary, cut at bytes 0x1e. Whatever it is, reading
/// ends with tokens and merges or with a DataError. Merges are read with that vocabulary and with a
/// fixed one; with those that were read the text is encoded: its tokens are its bytes, and a prefix
/// that can be encoded alone gives the ids of the whole.
namespace shoal {
namespace {

constexpr char kCut = '\x1e';

/// The bytes up to the next cut, which are taken off `input`.
std::string_view take_part(std::string_view& input) {
  const std::string_view part = input.substr(0, input.find(kCut));
  input.remove_prefix(std::min(part.size() + 1, input.size()));
  return part;
}

const std::vector<std::string>& fixed_tokens() {
  static const std::vector<std::string> tokens = parse_bpe_tokens(
      testing::vocab_json({"th", "he", "the", "in", "ing", " t", " th", " the", "'s", "  ", "\n\n",
                           "ab", "abab", "\xc3\xa9", " \xc3\xa9"}),
      "fixed");
  return tokens;
}

const Gpt2Splitter& splitter() {
  static const Gpt2Splitter made;
  return made;
}

void encode(const BpeMerger& merger, std::string_view text, std::vector<int64_t>& ids) {
  BpeMerger::Scratch scratch;
  Gpt2Splitter::Words words(splitter(), text);
  for (std::string_view word; words.next(word);) merger.encode(word, ids, scratch);
}

void check_text(const BpeVocabulary& vocabulary, std::string_view text) {
  // What is not UTF-8 has no words, but a cut may be looked for in it.
  if (splitter().last_cut(text) > text.size()) std::abort();
  text = text.substr(0, check_utf8(text).valid);
  const BpeMerger merger(vocabulary);
  std::vector<int64_t> ids, ids_of_pieces;
  encode(merger, text, ids);
  const size_t cut = splitter().last_cut(text);
  encode(merger, text.substr(0, cut), ids_of_pieces);
  encode(merger, text.substr(cut), ids_of_pieces);
  if (ids_of_pieces != ids) std::abort();
  std::string bytes;
  for (const int64_t id : ids) bytes += vocabulary.tokens.at(static_cast<size_t>(id));
  if (bytes != text) std::abort();
}

void check_merges(std::vector<std::string> tokens, std::string_view merges, std::string_view text) {
  BpeVocabulary vocabulary;
  try {
    vocabulary.merges = parse_bpe_merges(merges, tokens, "fuzz");
  } catch (const DataError&) {
    return;
  }
  vocabulary.tokens = std::move(tokens);
  check_text(vocabulary, text);
}

void check(std::string_view input) {
  const std::string_view merges = take_part(input), text = take_part(input), json = input;
  check_merges(fixed_tokens(), merges, text);
  std::vector<std::string> tokens;
  try {
    tokens = parse_bpe_tokens(json, "fuzz");
  } catch (const DataError&) {
    return;
  }
  check_merges(tokens, merges, text);
}

}  // namespace
}  // namespace shoal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shoal::check(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
