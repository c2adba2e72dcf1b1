#pragma once

#include <cstddef>
#include <ostream>
#include <vector>

#include "runtime/options/config_keys.h"

namespace shoal::config {

/// Prints the overview of `shoal keys`: for each section of a recipe (a run's YAML file) its keys
/// and choices, then the choices in nested sections. A choice, such as `router`, is a key that
/// selects an implementation (member), such as top_k; a member may add keys. Names take kNameWidth
/// characters, what they hold stands behind them.
void print_overview(const std::vector<KeyInfo>& keys, std::ostream& out);
inline constexpr std::size_t kNameWidth = 16;

/// Prints the keys that the member `owner` adds, one line each; a nested section takes one line
/// with the number of its keys. Returns the number of lines.
std::size_t print_member(const std::vector<KeyInfo>& keys, const KeyOwner& owner,
                         std::ostream& out);

/// Returns the keys that exist with these members chosen. Keys of other members of the same choices
/// are left out: with backbone vit, those of gpt2.
std::vector<KeyInfo> keys_with(const std::vector<KeyInfo>& keys,
                               const std::vector<KeyOwner>& chosen);

}  // namespace shoal::config
