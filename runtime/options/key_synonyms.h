#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shoal::config {

/// Returns the recipe keys for `word`, a key of PyTorch, Megatron or others, the likeliest first:
/// `batch` for `batch_size`, and for `num_experts` `experts.count`, the key `count` of any section
/// `experts`. Empty if none is known. `section`: path of the section where the word was used.
std::vector<std::string_view> keys_for_word(std::string_view word,
                                            std::string_view section = "model");

/// How values of `key` differ from those of `word`, "a factor of the peak rate"; "" if alike.
std::string_view difference_of(std::string_view word, std::string_view key);

/// The one of `values` that `word` means in other programs: `cuda` for `gpu`; "" if none.
std::string value_for_word(std::string_view word, const std::vector<std::string>& values);

}  // namespace shoal::config
