#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/options/config_keys.h"

namespace shoal::config {

/// Every section of a recipe on a screen: the members that it chooses among, the keys that it has
/// with any of them, and the choices inside other sections. Lines have `columns` at most, unless
/// one word is longer.
void print_overview(const std::vector<KeyInfo>& keys, std::size_t columns, std::ostream& out);

/// The keys that a member brings, a line each; of a section inside it the number of its keys.
/// Returns how many lines.
std::size_t print_member(const std::vector<KeyInfo>& keys, const KeyOwner& owner,
                         std::ostream& out);

/// The keys that there are if these members are chosen: those that belong to no other of their
/// kind.
std::vector<KeyInfo> keys_with(const std::vector<KeyInfo>& keys,
                               const std::vector<KeyOwner>& chosen);

}  // namespace shoal::config
