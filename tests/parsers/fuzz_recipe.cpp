#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/parsers/recipe_helper.h"

/// Input: a recipe, then overrides, cut at bytes 0x1e. Whatever it is, reading ends with options or
/// a ConfigError, and options that were read are written and read back to the same text.
namespace shoal::sample {
namespace {

constexpr char kCut = '\x1e';

std::vector<std::string> split(const std::string& input) {
  std::vector<std::string> parts{""};
  for (const char c : input) {
    if (c == kCut) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

void check(const std::string& input) {
  const std::vector<std::string> parts = split(input);
  std::string text;
  try {
    text = config::canonical_text(read(parts[0], {parts.begin() + 1, parts.end()}));
  } catch (const ConfigError&) {
    return;
  }
  if (config::canonical_text(read(text)) != text) std::abort();
}

}  // namespace
}  // namespace shoal::sample

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shoal::sample::check(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
