#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/duration.h"
#include "runtime/base/error.h"

namespace shoal {

/// to_steps, whose ConfigError begins with `key`.
inline int64_t steps_of(const std::string& key, const Duration& duration, const StepScale& scale) {
  try {
    return to_steps(duration, scale);
  } catch (const ConfigError& error) {
    throw ConfigError(key + ": " + error.what());
  }
}

}  // namespace shoal
