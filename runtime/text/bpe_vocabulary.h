#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/bpe_tokens.h"

namespace shoal {

/// Two tokens that become one wherever they stand side by side.
struct BpeMerge {
  int32_t left = 0, right = 0, result = 0;
};

/// What the two files of a byte-level BPE hold: encoder.json and vocab.bpe as OpenAI names them,
/// vocab.json and merges.txt as Hugging Face does.
struct BpeVocabulary {
  std::vector<std::string> tokens;  ///< the bytes of each id; each of the 256 bytes is a token
  std::vector<BpeMerge> merges;     ///< first to last as they apply; parts come before their whole
};

// Files may be hostile: what a mistake costs is bounded by kLargestBpeFile. Both throw DataError
// with the path and the line.

/// Lines of two tokens with a space between them, after a line that may begin with `#version`.
/// Parts and result must be among `tokens`.
std::vector<BpeMerge> parse_bpe_merges(std::string_view text,
                                       const std::vector<std::string>& tokens,
                                       const std::string& path);
BpeVocabulary read_bpe_vocabulary(const std::string& tokens_path, const std::string& merges_path);

/// SHA-256 of tokens and merges, whatever the files' names and layout.
std::string hash_bpe_vocabulary(const BpeVocabulary& vocabulary);

}  // namespace shoal
