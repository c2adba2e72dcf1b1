#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/duration.h"
#include "runtime/base/error.h"

namespace shoal {

/// Returns `duration` in optimizer steps (to_steps); `scale` has the batch size and epoch length.
/// If that throws ConfigError, puts `key`, the duration's recipe key, before the message.
inline int64_t steps_of(const std::string& key, const Duration& duration, const StepScale& scale) {
  try {
    return to_steps(duration, scale);
  } catch (const ConfigError& error) {
    throw ConfigError(key + ": " + error.what());
  }
}

}  // namespace shoal
