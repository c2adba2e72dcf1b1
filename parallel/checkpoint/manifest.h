#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/files/safetensors.h"

namespace shoal {

// A checkpoint is a folder of shards (safetensors files) and manifest.json, which lists them.

constexpr int64_t kManifestFormat = 1;  ///< format this build writes, and the latest it reads
constexpr uint64_t kBlockBytes = uint64_t{4} << 20;         ///< unit of a file's checksums
constexpr uint64_t kLargestManifest = uint64_t{256} << 20;  ///< bytes; some 1,500,000 tensors
inline constexpr char kManifestName[] = "manifest.json";

/// Returns the name of a checkpoint's folder, such as "step-00001200".
std::string step_folder(int64_t step);
/// Inverts step_folder: returns the step, or nullopt for any other text.
std::optional<int64_t> parse_step_folder(const std::string& name);

/// One shard: its size and the CRC-32C of each block of kBlockBytes; the last block may be shorter.
struct ManifestFile {
  std::string name;
  uint64_t bytes = 0;
  std::vector<uint32_t> block_crcs;
};

/// One saved tensor and where its bytes lie. Each expert of an expert stack is a tensor.
struct ManifestTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  int64_t file = 0;     ///< index into Manifest::files
  uint64_t offset = 0;  ///< first byte, counted from the beginning of the file
  uint64_t bytes = 0;
  uint32_t crc = 0;  ///< CRC-32C of the bytes
};

/// One number or text of the saved state, such as a counter.
struct ManifestValue {
  std::string name;
  std::variant<int64_t, double, std::string> value;
};

/// The content of manifest.json. Tensors and values are sorted by name.
struct Manifest {
  std::string run_id;
  int64_t step = 0;             ///< optimizer steps done
  int64_t samples = 0;          ///< samples read so far: where the data stream continues
  std::optional<double> score;  ///< score of the evaluation at this step; larger is better
  std::string parent;           ///< the checkpoint this run resumed from or wrote before; may be ""
  std::string recipe;           ///< the run's recipe (configuration), canonical text
  std::map<std::string, std::string> written_by;  ///< facts: versions, numbers of ranks
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;
  std::vector<ManifestValue> values;

  /// Returns the tensor, or value, of this name; null if there is none.
  const ManifestTensor* find_tensor(std::string_view name) const;
  const ManifestValue* find_value(std::string_view name) const;
  uint64_t total_bytes() const;  ///< size of all files
};

/// Returns the canonical JSON, which ends in its CRC-32C. Throws Error (exit 70) unless sorted.
std::string emit_manifest(const Manifest& manifest);

/// Thrown for a checkpoint of a later format than this build reads. Such a checkpoint is not
/// damaged; passing over it would lose progress that a newer version of this program has saved.
class NewerFormatError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

/// Throws NewerFormatError, naming `path`, if the text begins like a manifest of a later format.
void refuse_newer_format(std::string_view text, const std::string& path);

/// Parses an untrusted manifest text. Accepts exactly what emit_manifest writes, byte for byte.
/// Takes memory in proportion to the text, at most 64 MiB for a text of 24 MiB. Throws
/// NewerFormatError for a later format, else CheckpointError; messages begin with `'path': `.
Manifest parse_manifest(std::string_view text, const std::string& path);

/// Upper bounds on the size of a checkpoint.
struct CheckpointSize {
  uint64_t data_bytes = 0;
  uint64_t manifest_bytes = 0;        ///< above kLargestManifest no save succeeds
  uint64_t largest_header_bytes = 0;  ///< header of a shard, at most kLargestSafetensorsHeader
  uint64_t num_shards = 0;
};

/// Returns bounds for a checkpoint of these tensors, written by `ranks` ranks with a recipe of at
/// most 1 MiB. `entries`: the tensors of all ranks, each once.
CheckpointSize estimate_checkpoint(const std::vector<SafetensorsEntry>& entries, int64_t ranks);

/// Returns the file name of shard `index` (from 0) of `count`: "shard-00000-of-00002.safetensors".
std::string shard_name(int64_t index, int64_t count);

/// Parses a hexadecimal number as manifests have it, "0x1.8p+1"; nullopt for any other text.
std::optional<double> parse_hex_float(const std::string& text);

}  // namespace shoal
