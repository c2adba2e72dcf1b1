#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace shoal::testing {

/// The lines of the ConfigError that `work` throws; none if it throws none.
inline std::vector<std::string> mistakes_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const ConfigError& error) {
    return error.lines();
  }
  return {};
}

/// Text of the ConfigError that `work` throws; "no error" if there is none.
inline std::string config_error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace shoal::testing
