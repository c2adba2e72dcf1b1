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

constexpr int64_t kManifestFormat = 1;  ///< format this build writes, and the latest it reads
constexpr uint64_t kBlockBytes = uint64_t{4} << 20;         ///< unit of a file's checksums
constexpr uint64_t kLargestManifest = uint64_t{256} << 20;  ///< some 1,500,000 tensors
inline constexpr char kManifestName[] = "manifest.json";

/// A checkpoint's folder, "step-00001200", and back; nothing if it is no such name.
std::string step_folder(int64_t step);
std::optional<int64_t> parse_step_folder(const std::string& name);

/// One shard: its size and the CRC-32C of each block of kBlockBytes, the last one shorter.
struct ManifestFile {
  std::string name;
  uint64_t bytes = 0;
  std::vector<uint32_t> block_crcs;
};

/// One logical tensor and where its bytes lie.
struct ManifestTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  int64_t file = 0;     ///< index into Manifest::files
  uint64_t offset = 0;  ///< from the beginning of the file
  uint64_t bytes = 0;
  uint32_t crc = 0;
};

/// One small value of the saved state.
struct ManifestValue {
  std::string name;
  std::variant<int64_t, double, std::string> value;
};

/// The content of manifest.json. Tensors and values are sorted by name.
struct Manifest {
  std::string run_id;
  int64_t step = 0;             ///< optimizer steps done
  int64_t samples = 0;          ///< the data cursor: position in the sample stream
  std::optional<double> score;  ///< score of the evaluation at this step; larger is better
  std::string parent;           ///< the checkpoint this run resumed from or wrote before; may be ""
  std::string recipe;           ///< canonical text
  std::map<std::string, std::string> written_by;  ///< versions, topology, collective settings
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;
  std::vector<ManifestValue> values;

  /// Null if no tensor has this name.
  const ManifestTensor* find_tensor(std::string_view name) const;
  const ManifestValue* find_value(std::string_view name) const;
  uint64_t total_bytes() const;  ///< size of all files
};

/// The canonical text, which ends in a CRC-32C of itself. Sorts nothing: throws Error (exit 70), a
/// bug, if tensors or values are not sorted.
std::string emit_manifest(const Manifest& manifest);

/// A checkpoint of a later format than this build reads. It is not damaged: to pass over it would
/// lose the progress that a newer Shoal has saved.
class NewerFormatError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

/// Throws NewerFormatError if the text begins as a manifest of a later format.
void refuse_newer_format(std::string_view text, const std::string& path);

/// Parses an untrusted text; accepts the canonical form only, byte for byte. Takes memory in
/// proportion to the text, at most 64 MiB for one of 24 MiB. Throws CheckpointError, beginning with
/// `'path': `; NewerFormatError as refuse_newer_format.
Manifest parse_manifest(std::string_view text, const std::string& path);

/// Upper bounds on the size of a checkpoint.
struct CheckpointSize {
  uint64_t data_bytes = 0;
  uint64_t manifest_bytes = 0;        ///< above kLargestManifest no save succeeds
  uint64_t largest_header_bytes = 0;  ///< header of a shard; more shards keep it below its limit
  uint64_t num_shards = 0;
};

/// Bounds for a state of these tensors, the tensors of all ranks, each once, with a recipe of at
/// most 1 MiB.
CheckpointSize estimate_checkpoint(const std::vector<SafetensorsEntry>& entries, int64_t ranks);

/// "shard-00000-of-00002.safetensors".
std::string shard_name(int64_t index, int64_t count);

/// Parses what hex_float (runtime/records/metrics.h) writes; nothing for any other text.
std::optional<double> parse_hex_float(const std::string& text);

}  // namespace shoal
