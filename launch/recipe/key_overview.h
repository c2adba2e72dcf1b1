#pragma once

#include <cstddef>
#include <ostream>
#include <vector>

#include "runtime/options/config_keys.h"

namespace shoal::config {

/// Prints every section of a recipe: the members it chooses from, their common keys, and the
/// choices in nested sections. Lines have at most `columns`, unless one word is longer.
void print_overview(const std::vector<KeyInfo>& keys, std::size_t columns, std::ostream& out);

/// Prints the keys that a member adds, a line each; for a nested section its number of keys.
/// Returns the number of lines.
std::size_t print_member(const std::vector<KeyInfo>& keys, const KeyOwner& owner,
                         std::ostream& out);

/// The keys that exist with these members chosen: all except those of other members of the same
/// choices.
std::vector<KeyInfo> keys_with(const std::vector<KeyInfo>& keys,
                               const std::vector<KeyOwner>& chosen);

}  // namespace shoal::config
