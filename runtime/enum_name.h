#pragma once

#include <string_view>

#include "runtime/config.h"

namespace shoal {

/// The word that recipes use for a value that EnumNames lists; "" for another.
template <class Enum>
std::string_view enum_name(Enum value) {
  for (const auto& [known, name] : EnumNames<Enum>::names) {
    if (known == value) return name;
  }
  return "";
}

}  // namespace shoal
