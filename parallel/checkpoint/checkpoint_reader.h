#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "parallel/checkpoint/manifest.h"
#include "runtime/files/untrusted_file.h"

namespace shoal {

/// Returns the text of `path`/manifest.json, not parsed. Throws CheckpointError, StorageError.
std::string read_manifest_text(const std::string& path);

/// Reads the tensors of one checkpoint: a folder of shards (safetensors files) and a manifest,
/// which lists tensors, sizes and checksums. Contents are not trusted and are checked against the
/// checksums. All methods throw CheckpointError, naming the file, the tensor and the bytes, if the
/// checkpoint is damaged; StorageError if a file cannot be read.
class CheckpointReader {
 public:
  /// Opens the checkpoint and checks everything but the tensors' bytes: the names and sizes of the
  /// files in the folder, and the shards' headers against the manifest.
  explicit CheckpointReader(const std::string& path)
      : CheckpointReader(path, read_manifest_text(path)) {}
  /// Opens the checkpoint with a manifest text read before, such as by rank 0.
  CheckpointReader(const std::string& path, std::string_view manifest_text);

  const std::string& path() const { return folder_.path(); }
  const Manifest& manifest() const& { return manifest_; }
  Manifest manifest() && { return std::move(manifest_); }

  /// Checks every byte of every shard against the checksums.
  void verify_data() const {
    for (size_t i = 0; i < files_.size(); ++i) verify_file(i);
  }
  /// Reads a tensor of manifest() into `out`, of tensor.bytes bytes, and checks it.
  void read(const ManifestTensor& tensor, char* out) const;
  /// Passes a tensor's bytes to `sink` in pieces, in order; checks them after the last.
  void stream(const ManifestTensor& tensor,
              const std::function<void(std::string_view)>& sink) const;
  /// Returns the SHA-256 of a tensor's bytes, in hex, after checking them.
  std::string tensor_sha256(const ManifestTensor& tensor) const;

 private:
  UntrustedFolder folder_;
  Manifest manifest_;
  std::vector<UntrustedFile> files_;
  std::vector<std::vector<const ManifestTensor*>> tensors_of_;  ///< by file, then offset

  void check_names() const;
  void check_sizes() const;
  void check_header(size_t index) const;
  void verify_file(size_t index) const;
  void group_tensors();
  void check_crc(const ManifestTensor& tensor, uint32_t crc) const;
  std::string tensors_within(size_t file, uint64_t begin, uint64_t end) const;
  std::string wrong_tensors(size_t file) const;
};

/// Returns the metadata of a shard's header: the run and the step it belongs to.
std::map<std::string, std::string> shard_metadata(const std::string& run_id, int64_t step);

/// Returns "sha256:…", a hash by which to compare checkpoints. It covers `step`, `samples` (read so
/// far) and each tensor's name, dtype, shape and bytes, not the run, recipe or ranks. `sha256_of`
/// returns the SHA-256 of a tensor's bytes. The second form hashes a checkpoint.
std::string content_digest(const std::vector<ManifestTensor>& sorted_tensors, int64_t step,
                           int64_t samples,
                           const std::function<std::string(const ManifestTensor&)>& sha256_of);
std::string content_digest(const CheckpointReader& reader);

}  // namespace shoal
