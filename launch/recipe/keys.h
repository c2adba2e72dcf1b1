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

/// Documents recipe keys. With `name` tries in turn: keys at or below this path; keys of this name
/// in other sections, and choices of this name, such as rigl; keys that other programs call `name`,
/// such as batch_size for train.batch. With `all`: every key. With neither: keys of the given
/// backbone, task, router and data source or, without any, an overview. Throws Error (exit 2), with
/// similar names, for an unknown name.
ExitCode keys(const KeysArguments& arguments, std::ostream& out);

/// Returns the path of the recipe key with this name, or for this word of other programs, in the
/// outermost section: `optimizer.lr` for `lr` and for `learning-rate`. "" if there is none.
std::string key_named(std::string name);

}  // namespace shoal
