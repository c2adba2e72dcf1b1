#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

constexpr size_t kMostBpeTokens = 65'536;
constexpr size_t kLargestBpeFile = size_t{16} << 20;

/// Parses the tokens of a byte-level BPE, by id, as bytes, from a JSON object {token: id}: ids 0 to
/// n - 1, each of the 256 bytes among the tokens. The file is not trusted. Throws DataError with
/// `path` and the byte of the mistake, for a token the byte after it.
std::vector<std::string> parse_bpe_tokens(std::string_view json, const std::string& path);

/// Decodes a token in a file to its bytes: a printable byte is written as itself, the others as the
/// characters from U+0100 on ("Ġ" is a space). Nothing if it has other characters or is empty.
/// Source: Radford et al. 2019, encoder.py, bytes_to_unicode.
std::optional<std::string> bytes_of_symbols(std::string_view symbols);

/// Throws DataError if a file's text is too large or not UTF-8.
void check_bpe_text(std::string_view text, const std::string& path);

/// The beginning of a token or a line, for messages.
std::string shorten_symbols(std::string_view text);

}  // namespace shoal
