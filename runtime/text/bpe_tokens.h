#pragma once

#include <cstddef>
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

}  // namespace shoal
