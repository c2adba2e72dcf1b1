#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/bpe_tokens.h"

namespace shoal {

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
