#pragma once

#include <string_view>
#include <vector>

namespace shoal::config {

/// The keys that stand for what other programs call `word`, the likeliest first; `experts.count` is
/// the key `count` of any section `experts`. Empty if none is known.
std::vector<std::string_view> keys_for_word(std::string_view word);

}  // namespace shoal::config
