#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shoal::config {

/// Returns the recipe keys for `word`, a key of PyTorch, Megatron or others, the likeliest first.
/// `batch_size` gives `batch`; `num_experts` gives `experts.count`, which means the key `count` of
/// any section `experts`. Empty if none is known. `section`: path of the section that has the word.
std::vector<std::string_view> keys_for_word(std::string_view word,
                                            std::string_view section = "model");

/// How values of the recipe key `key` differ from those of the other program's `word`: for `end`
/// and `min_lr`, "a factor of the peak rate". "" if they do not differ.
std::string_view difference_of(std::string_view word, std::string_view key);

/// Returns the element of `values` that means what `word` means in other programs: for `gpu` it
/// returns `cuda`. "" if none does.
std::string value_for_word(std::string_view word, const std::vector<std::string>& values);

}  // namespace shoal::config
