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
  bool all = false;
  /// The terminal's columns, which lines are made to fit; nothing if the output is no terminal:
  /// then an overview has 80, and sentences stay whole.
  std::optional<int64_t> columns = {};
};

/// Documents the keys that print_keys finds for `name`, or those that correspond to it in other
/// programs, or all; without a name the keys that a chosen member adds, or an overview of all
/// sections. Throws Error (exit 2), with the nearest name, if there is no such key or member.
ExitCode keys(const KeysArguments& arguments, std::ostream& out);

}  // namespace shoal
