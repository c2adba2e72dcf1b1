#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

constexpr size_t kMostBpeTokens = 65'536;
constexpr size_t kLargestBpeFile = size_t{16} << 20;  ///< bytes

/// Parses the vocabulary of a byte-level BPE tokenizer, a JSON object {token: id}, and returns the
/// bytes of each token, by id. Ids must be 0 to n - 1, and each of the 256 bytes a token. Accepts
/// untrusted files. Throws DataError with `path` and the mistake's byte, or the wrong token.
std::vector<std::string> parse_bpe_tokens(std::string_view json, const std::string& path);

/// Decodes a token in a file to its bytes: a printable byte is written as itself, the others as the
/// characters from U+0100 on ("Ġ" is a space). nullopt if it has other characters or is empty.
/// Source: Radford et al. 2019, encoder.py, bytes_to_unicode.
std::optional<std::string> bytes_of_symbols(std::string_view symbols);

/// Throws DataError if a file's text is too large or not UTF-8.
void check_bpe_text(std::string_view text, const std::string& path);

/// Cuts a long token or line, for messages.
std::string shorten_symbols(std::string_view text);

/// Two tokens that merge into one wherever they are adjacent.
struct BpeMerge {
  int32_t left = 0, right = 0, result = 0;
};

/// Content of OpenAI's encoder.json and vocab.bpe, or Hugging Face's vocab.json and merges.txt.
struct BpeVocabulary {
  std::vector<std::string> tokens;  ///< the bytes of each id; each of the 256 bytes is a token
  std::vector<BpeMerge> merges;     ///< highest priority first; parts are bytes or earlier results
};

// Both functions accept untrusted files. They throw DataError with the path, also for files above
// kLargestBpeFile. Wrong merges are reported with the line.

/// Parses lines of two tokens separated by a space, after an optional first line `#version`. The
/// two tokens and the token they merge into must be among `tokens`.
std::vector<BpeMerge> parse_bpe_merges(std::string_view text,
                                       const std::vector<std::string>& tokens,
                                       const std::string& path);
BpeVocabulary read_bpe_vocabulary(const std::string& tokens_path, const std::string& merges_path);

/// SHA-256 of tokens and merges, independent of the files' names and layout.
std::string hash_bpe_vocabulary(const BpeVocabulary& vocabulary);

}  // namespace shoal
