#include "runtime/base/error.h"

#include <utility>

namespace shoal {
namespace {

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (!text.empty()) text += '\n';
    text += line;
  }
  return text;
}

}  // namespace

ConfigError::ConfigError(std::vector<std::string> lines, ExitCode code)
    : Error(code, join_lines(lines)), lines_(std::move(lines)) {}

}  // namespace shoal
