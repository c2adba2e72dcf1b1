#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/untrusted_file.h"

namespace shoal {

/// Dtypes of safetensors files, Hugging Face's format of weights: the length of the header in 8
/// bytes, the header in JSON (name, dtype, shape and place of each tensor), the tensors' bytes.
enum class Dtype { kF64, kF32, kBF16, kF16, kI64, kI32, kU8, kBool };

/// Name of a dtype in safetensors: "F64", "BF16", ….
std::string_view dtype_name(Dtype dtype);
std::optional<Dtype> parse_dtype(std::string_view name);
uint64_t dtype_bytes(Dtype dtype);

/// Size of a tensor in bytes; nothing for more than 8 dimensions, negative ones, or an overflow.
std::optional<uint64_t> tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape);

/// Dtype and shape for messages, "F32 [2, 3]".
std::string describe_tensor(Dtype dtype, const std::vector<int64_t>& shape);

/// One tensor of a file; its bytes are [begin, end), counted from the end of the header.
struct SafetensorsEntry {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in order of their bytes in the file
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  ///< offset of the data in the file
};

constexpr uint64_t kLargestSafetensorsHeader = uint64_t{16} << 20;  ///< bytes of JSON

/// Parses the JSON header, which is not trusted, of a file of `file_bytes` bytes. Accepts string
/// metadata, known dtypes, up to 8 dimensions, unique names, and tensors that cover the data from
/// first to last byte without gap or overlap. Else throws CheckpointError, beginning with `path`.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t file_bytes,
                                           const std::string& path);

/// Reads the header of an open file. Throws CheckpointError if it is wrong; pickle and zip files
/// are refused with a message of their own.
SafetensorsHeader read_safetensors_header(const UntrustedFile& file);

/// Returns the bytes before the data: length, JSON, and spaces so that the data begins at a
/// multiple of 8. Sets begin and end of the entries, one behind the other; all tensors are aligned
/// if larger dtypes come first. Throws Error (exit 70) if the header is too long to be read back.
std::string emit_safetensors_header(std::vector<SafetensorsEntry>& entries,
                                    const std::map<std::string, std::string>& metadata);

/// Upper bound on the bytes that `entry` takes in a header, whatever its begin and end.
uint64_t safetensors_entry_bytes(const SafetensorsEntry& entry);

/// Throws CheckpointError if the file begins like a pickle or zip file.
void refuse_pickle(const UntrustedFile& file);

/// `text` as a JSON string, quotes included, with the shortest escapes.
std::string json_quote(std::string_view text);

}  // namespace shoal
