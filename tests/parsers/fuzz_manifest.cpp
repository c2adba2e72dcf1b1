#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "parallel/checkpoint/manifest.h"
#include "runtime/base/error.h"
#include "runtime/files/crc32c.h"

/// Input: a manifest without its last line, the checksum, which is added so that the checks after
/// it are reached. Whatever it is, reading ends with a manifest, whose text is the input byte for
/// byte, or with a CheckpointError.
namespace shoal {
namespace {

void read(const std::string& text) {
  Manifest manifest;
  try {
    manifest = parse_manifest(text, "fuzz");
  } catch (const CheckpointError&) {
    return;
  }
  if (emit_manifest(manifest) != text) std::abort();
}

}  // namespace
}  // namespace shoal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  shoal::read(text);
  shoal::read(text + fmt::format("\"crc32c\":\"{:08x}\"}}\n", shoal::crc32c(text)));
  return 0;
}
