#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/duration.h"
#include "runtime/base/error.h"

namespace shoal {

/// to_steps, with `key` put before the message of its ConfigError.
inline int64_t steps_of(const std::string& key, const Duration& duration, const StepScale& scale) {
  try {
    return to_steps(duration, scale);
  } catch (const ConfigError& error) {
    throw ConfigError(key + ": " + error.what());
  }
}

}  // namespace shoal
