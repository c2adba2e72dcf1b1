#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "runtime/base/error.h"

namespace shoal {

/// `shoal keys [NAME] [--backbone B] [--task T] [--router R] [--data D] [--all]`.
struct KeysArguments {
  std::string name = {};
  std::string backbone = {}, task = {}, router = {}, data = {};  ///< list only keys that these have
  bool all = false;                                              ///< document every key
  /// The terminal's columns, to which lines are wrapped. Unset if the output is not a terminal:
  /// then the overview has 80 columns and other lines are not wrapped.
  std::optional<int64_t> columns = {};
};

/// Documents recipe keys. With `name`: the keys at or below this path, else those of this name in
/// other sections, else those for what other programs call `name`. With `all`: every key. With
/// neither: the keys that the chosen members add, or an overview of all sections. Throws Error
/// (exit 2), with the nearest name, if there is no such key or member.
ExitCode keys(const KeysArguments& arguments, std::ostream& out);

}  // namespace shoal
