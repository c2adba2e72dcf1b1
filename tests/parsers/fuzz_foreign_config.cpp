#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "models/formats/foreign_config.h"
#include "runtime/base/error.h"

/// Input: a config.json. Whatever it is, reading each key as each type ends with a value or with an
/// Error, and writing it with a text that is not empty.
namespace shoal {
namespace {

template <typename Read>
void attempt(const Read& read) {
  try {
    read();
  } catch (const Error&) {
  }
}

void read_keys(const ForeignConfig& config) {
  Mistakes mistakes;
  for (const std::string& key : config.keys()) {
    attempt([&] { config.integer(key); });
    attempt([&] { config.number(key); });
    attempt([&] { config.boolean(key); });
    attempt([&] { config.text(key); });
    attempt([&] { config.numbers(key); });
    attempt([&] { read_keys(config.section(key)); });
    if (config.written(key).empty()) std::abort();
    require_value(config, key, "1", mistakes);
  }
  attempt([&] { mistakes.throw_if_any("other values:"); });
}

}  // namespace
}  // namespace shoal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  shoal::attempt([&] { shoal::read_keys(shoal::ForeignConfig(text, "fuzz")); });
  return 0;
}
