#include "runtime/files/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "runtime/base/error.h"

namespace shoal {
namespace {

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<DtypeRow, 8> kDtypes{{{Dtype::kF64, "F64", 8},
                                           {Dtype::kF32, "F32", 4},
                                           {Dtype::kBF16, "BF16", 2},
                                           {Dtype::kF16, "F16", 2},
                                           {Dtype::kI64, "I64", 8},
                                           {Dtype::kI32, "I32", 4},
                                           {Dtype::kU8, "U8", 1},
                                           {Dtype::kBool, "BOOL", 1}}};
constexpr size_t kMostDims = 8;
constexpr uint64_t kLengthBytes = 8;
static_assert(std::endian::native == std::endian::little, "the length is little-endian");

const DtypeRow& row_of(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)]; }

std::string emit_entry(const SafetensorsEntry& entry) {
  return fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                     json_quote(entry.name), dtype_name(entry.dtype), fmt::join(entry.shape, ","),
                     entry.begin, entry.end);
}

std::string emit_json(const std::vector<SafetensorsEntry>& entries,
                      const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (json.back() != '{') json += ',';
      json += json_quote(key) + ":" + json_quote(value);
    }
    json += '}';
  }
  for (const SafetensorsEntry& entry : entries) {
    if (json.size() > 1) json += ',';
    json += emit_entry(entry);
  }
  return json + "}";
}

}  // namespace

std::string_view dtype_name(Dtype dtype) { return row_of(dtype).name; }

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

uint64_t dtype_bytes(Dtype dtype) { return row_of(dtype).bytes; }

std::optional<uint64_t> tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape) {
  if (shape.size() > kMostDims) return std::nullopt;
  // An overflow that a later zero would hide is refused too: no reader agrees on such shapes.
  uint64_t bytes = dtype_bytes(dtype);
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  if (bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return bytes;
}

std::string describe_tensor(Dtype dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype_name(dtype), fmt::join(shape, ", "));
}

SafetensorsHeader read_safetensors_header(const UntrustedFile& file) {
  refuse_pickle(file);
  if (file.size() < kLengthBytes) {
    throw CheckpointError(
        fmt::format("'{}': {} bytes are too few for a safetensors file", file.path(), file.size()));
  }
  uint64_t length = 0;
  file.read(0, reinterpret_cast<char*>(&length), kLengthBytes);
  if (length > kLargestSafetensorsHeader) {
    throw CheckpointError(
        fmt::format("'{}': bytes 0..8 claim a header of {} bytes; at most {} are read", file.path(),
                    length, kLargestSafetensorsHeader));
  }
  return parse_safetensors_header(file.read(kLengthBytes, length), file.size(), file.path());
}

std::string emit_safetensors_header(std::vector<SafetensorsEntry>& entries,
                                    const std::map<std::string, std::string>& metadata) {
  uint64_t place = 0;
  for (SafetensorsEntry& entry : entries) {
    const std::optional<uint64_t> bytes = tensor_bytes(entry.dtype, entry.shape);
    if (!bytes.has_value()) {
      throw Error(ExitCode::kInternal,
                  fmt::format("tensor '{}' {} does not fit a safetensors file", entry.name,
                              describe_tensor(entry.dtype, entry.shape)));
    }
    entry.begin = place;
    entry.end = place += *bytes;
  }
  std::string json = emit_json(entries, metadata);
  json.append((kLengthBytes - json.size() % kLengthBytes) % kLengthBytes, ' ');
  if (json.size() > kLargestSafetensorsHeader) {
    throw Error(ExitCode::kInternal,
                fmt::format("a safetensors header of {} tensors is longer than {} bytes",
                            entries.size(), kLargestSafetensorsHeader));
  }
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + json;
}

uint64_t safetensors_entry_bytes(const SafetensorsEntry& entry) {
  constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const SafetensorsEntry longest{entry.name, entry.dtype, entry.shape, kLargest, kLargest};
  return emit_entry(longest).size() + 1;  // and a comma
}

void refuse_pickle(const UntrustedFile& file) {
  const std::string magic = file.read(0, std::min<uint64_t>(kLengthBytes + 1, file.size()));
  const bool is_zip = magic.starts_with("PK\x03\x04");
  // Protocol 2 and later open with PROTO and the protocol's number; so does the length of a header
  // of 640 bytes, which the header follows.
  const bool has_header = magic.size() > kLengthBytes && magic[kLengthBytes] == '{';
  const bool is_pickle =
      magic.size() >= 2 && magic[0] == '\x80' && magic[1] >= 2 && magic[1] <= 5 && !has_header;
  if (is_zip || is_pickle) {
    throw CheckpointError(
        fmt::format("'{}': pickle checkpoints are not loaded (they can run code)", file.path()),
        "turn it into safetensors: launch/pickle_to_safetensors IN OUT");
  }
}

std::string json_quote(std::string_view text) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t", kLetters = "\"\\nrt";
  std::string quoted = "\"";
  for (const char byte : text) {
    if (const size_t at = kEscaped.find(byte); at != kEscaped.npos) {
      quoted += {'\\', kLetters[at]};
    } else if (static_cast<unsigned char>(byte) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<int>(byte));
    } else {
      quoted += byte;
    }
  }
  return quoted + "\"";
}

}  // namespace shoal
