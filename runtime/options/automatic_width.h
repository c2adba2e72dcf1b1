#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/base/size_limits.h"
#include "runtime/options/config.h"

namespace shoal {

/// Reports a problem if `key`, a hidden width, is `auto` and stands for more than kMostWidth, the
/// limit of explicit values. `set`: the value in the recipe, nullopt for `auto`; `automatic`: what
/// `auto` gives at the model's `width`.
inline void check_automatic_width(std::string_view key, const std::optional<int64_t>& set,
                                  int64_t automatic, int64_t width, Problems& problems) {
  if (set || static_cast<double>(automatic) <= kMostWidth) return;
  problems.add(key, fmt::format("auto is {} at a width of {}, and must be at most {}; set it, or "
                                "lower the width",
                                automatic, width, kMostWidth));
}

}  // namespace shoal
