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
  std::string backbone = {}, task = {}, router = {}, data = {};  ///< only keys that these have
  bool all = false;
  /// Width of the terminal, to which lines are fitted; nothing if the output is not a terminal:
  /// then an overview has 80 columns, and sentences are not wrapped.
  std::optional<int64_t> columns = {};
};

/// Documents the keys that print_keys finds by `name`, or those that stand for what other programs
/// call so, or all; without either the keys that a chosen member brings, or an overview of all
/// sections. Throws Error (exit 2), with the nearest name, if there is no such key or member.
ExitCode keys(const KeysArguments& arguments, std::ostream& out);

}  // namespace shoal
