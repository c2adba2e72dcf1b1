#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate nearest to `word`; "" if its edit distance is above 2, or above half the
/// length of the longer word. Ties go to the earlier candidate.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// "; did you mean 'X'?" for the nearest candidate, or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

/// True if the whole `text` matches `pattern`: * stands for any characters or none, ? for any one.
bool matches_glob(std::string_view text, std::string_view pattern);

/// True if the text has bytes below 32, or 127: line ends, terminal escape codes.
bool has_control_character(std::string_view text);

/// The text in quotes for messages: at most 80 bytes, those that are not printable ASCII as '?'.
std::string quoted_excerpt(std::string_view text);

/// The text with `by` in place of each `what`.
std::string replaced(std::string text, std::string_view what, std::string_view by);

/// The text with small letters in place of the capitals of ASCII.
std::string lower_case(std::string_view text);

/// The number >= 0 that the digits of `text` are; nullopt for any other text, or above 2^63 - 1.
std::optional<int64_t> parse_digits(std::string_view text, int base = 10);

/// The number with its noun, "1 rank", "2 ranks".
std::string counted(int64_t number, std::string_view noun);

/// The number rounded to a whole one, with separators, "59,111,472".
std::string grouped(double number);

/// A time for display: `1h02m`, `3m20s`, `12s`.
std::string human_seconds(double seconds);
/// A size for display: `37 B`, `1.5 KiB`, `512 MiB`, `1.2 GiB`.
std::string human_bytes(double bytes);

/// Splits at each separator; "a,,b," gives "a", "" and "b", without an empty part at the end.
std::vector<std::string> split(std::string_view text, char separator);

/// Joins words: "a, b, c".
std::string join_words(const std::vector<std::string>& words, std::string_view separator = ", ");

/// A table for display: columns aligned, the first row underlined. `rows`: the cells of each row.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace shoal
