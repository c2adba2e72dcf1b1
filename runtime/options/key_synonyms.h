#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shoal::config {

/// The keys that correspond to `word` in other programs, the likeliest first; `experts.count` is
/// the key `count` of any section `experts`. Empty if none is known. `section`: place of the word.
std::vector<std::string_view> keys_for_word(std::string_view word,
                                            std::string_view section = "model");

/// How the value of `key` differs from that of `word`: "a factor of the peak rate"; "" if it does
/// not.
std::string_view difference_of(std::string_view word, std::string_view key);

/// The value among `values` that corresponds to `word` in other programs: `cuda` for `gpu`; "" if
/// none is known.
std::string value_for_word(std::string_view word, const std::vector<std::string>& values);

}  // namespace shoal::config
