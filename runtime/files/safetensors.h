#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/untrusted_file.h"

namespace shoal {

enum class Dtype { kF64, kF32, kBF16, kF16, kI64, kI32, kU8, kBool };

/// "F64", "BF16", … as safetensors spells them.
std::string_view dtype_name(Dtype dtype);
std::optional<Dtype> parse_dtype(std::string_view name);
uint64_t dtype_bytes(Dtype dtype);

/// Bytes of a tensor; nothing if it has more than 8 dimensions, a negative one, or overflows.
std::optional<uint64_t> tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape);

/// "F32 [2, 3]".
std::string describe_tensor(Dtype dtype, const std::vector<int64_t>& shape);

/// One tensor of a file; its bytes are [begin, end) of the data after the header.
struct SafetensorsEntry {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< by place in the file
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  ///< where the data starts in the file
};

constexpr uint64_t kLargestSafetensorsHeader = uint64_t{16} << 20;

/// Reads the header of a file of `file_bytes` bytes from its JSON text, which may be hostile.
/// Accepted: string metadata; known dtypes; at most 8 dimensions; names used once; data that the
/// tensors cover from the first byte to the last without gap or overlap.
/// Throws CheckpointError, beginning with `'path': `.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t file_bytes,
                                           const std::string& path);

/// The header of an open file. Pickle and zip files are refused by name.
SafetensorsHeader read_safetensors_header(const UntrustedFile& file);

/// Everything before the data: length, JSON, and spaces so that the data begins at a multiple of 8.
/// Sets begin and end of the entries in their order. Entries of falling dtype size stay aligned.
/// Throws Error (exit 70) if the header would be too long to be read back.
std::string emit_safetensors_header(std::vector<SafetensorsEntry>& entries,
                                    const std::map<std::string, std::string>& metadata);

/// Most bytes that the entry takes in a header, wherever its data is.
uint64_t safetensors_entry_bytes(const SafetensorsEntry& entry);

/// Throws CheckpointError if the file begins as pickle and zip files do.
void refuse_pickle(const UntrustedFile& file);

/// `text` as a JSON string, quotes included; the shortest escapes.
std::string json_quote(std::string_view text);

}  // namespace shoal
