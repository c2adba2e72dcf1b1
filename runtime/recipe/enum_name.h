#pragma once

#include <stdexcept>
#include <string_view>

#include "runtime/recipe/config.h"

namespace shoal {

/// The word that recipes use for a value, which EnumNames lists.
template <class Enum>
std::string_view enum_name(Enum value) {
  for (const auto& [known, name] : EnumNames<Enum>::names) {
    if (known == value) return name;
  }
  throw std::logic_error("enum_name: a value without a name");
}

}  // namespace shoal
