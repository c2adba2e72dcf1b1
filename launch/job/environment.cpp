#include "launch/job/environment.h"

#include <cstdlib>

namespace shoal {

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

std::string cache_folder(const Environment& environment) {
  if (!environment) return "";
  const std::string given = environment("XDG_CACHE_HOME").value_or("");
  if (!given.empty()) return given + "/shoal";
  const std::string home = environment("HOME").value_or("");
  return home.empty() ? "" : home + "/.cache/shoal";
}

}  // namespace shoal
