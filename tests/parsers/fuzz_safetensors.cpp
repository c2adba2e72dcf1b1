#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/base/error.h"
#include "runtime/files/safetensors.h"

/// Input: the JSON of a header; the data after it is as long as the header wants, so that the
/// checks of the layout are reached. Whatever it is, reading ends with a header or a
/// CheckpointError, and a header that was read is written and read back to the same tensors.
namespace shoal {
namespace {

constexpr uint64_t kLengthBytes = 8;

void read(const std::string& json, uint64_t data_bytes) {
  SafetensorsHeader header;
  try {
    header = parse_safetensors_header(json, kLengthBytes + json.size() + data_bytes, "fuzz");
  } catch (const CheckpointError&) {
    return;
  }
  std::vector<SafetensorsEntry> entries = header.entries;
  const std::string text = emit_safetensors_header(entries, header.metadata);
  const SafetensorsHeader again =
      parse_safetensors_header(text.substr(kLengthBytes), text.size() + data_bytes, "again");
  if (again.metadata != header.metadata || again.entries.size() != entries.size()) std::abort();
  for (size_t i = 0; i < entries.size(); ++i) {
    const SafetensorsEntry &a = header.entries[i], &b = again.entries[i];
    if (a.name != b.name || a.dtype != b.dtype || a.shape != b.shape || a.begin != b.begin ||
        a.end != b.end) {
      std::abort();
    }
  }
}

}  // namespace
}  // namespace shoal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string json(reinterpret_cast<const char*>(data), size);
  for (const uint64_t data_bytes : {0, 2, 10, 64}) shoal::read(json, data_bytes);
  return 0;
}
