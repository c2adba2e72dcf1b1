#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "parallel/checkpoint/manifest.h"
#include "runtime/files/untrusted_file.h"

namespace shoal {

/// The text of PATH/manifest.json, not parsed. Throws CheckpointError.
std::string read_manifest_text(const std::string& path);

/// A committed checkpoint, opened for reading; its contents are not trusted. Throws
/// CheckpointError, which names the file, the tensor and the bytes.
class CheckpointReader {
 public:
  /// Reads the manifest and checks everything but the data: the folder holds just the manifest and
  /// its shards; sizes; shard headers against the manifest, with their step and run.
  explicit CheckpointReader(const std::string& path);
  /// Takes the manifest's text, as another rank read it, instead of reading it.
  CheckpointReader(const std::string& path, std::string_view manifest_text);

  const std::string& path() const { return folder_.path(); }
  const Manifest& manifest() const& { return manifest_; }
  Manifest manifest() && { return std::move(manifest_); }

  /// Checks every byte of every shard.
  void verify_data() const;
  /// Fills `out` with the tensor's bytes and checks them.
  void read(const ManifestTensor& tensor, char* out) const;
  /// Passes the tensor's bytes to `sink` in order; throws after the last piece if they are wrong.
  void stream(const ManifestTensor& tensor,
              const std::function<void(std::string_view)>& sink) const;
  /// SHA-256 of a tensor's bytes, which are checked.
  std::string tensor_sha256(const ManifestTensor& tensor) const;

 private:
  UntrustedFolder folder_;
  Manifest manifest_;
  std::vector<UntrustedFile> files_;
  std::vector<std::vector<const ManifestTensor*>> tensors_of_;  ///< by file, then by offset

  void check_names() const;
  void check_sizes() const;
  void check_header(size_t index) const;
  void verify_file(size_t index) const;
  void group_tensors();
  void check_crc(const ManifestTensor& tensor, uint32_t crc) const;
  std::string tensors_within(size_t file, uint64_t begin, uint64_t end) const;
  std::string wrong_tensors(size_t file) const;
};

/// Metadata in a shard's header, which identifies the run and the step it belongs to.
std::map<std::string, std::string> shard_metadata(const std::string& run_id, int64_t step);

/// "sha256:…" over the content: name, dtype, shape and bytes of each tensor in the order of their
/// names, the step, and the data cursor. Independent of the run, the recipe and the number of
/// ranks. `sha256_of` gives the SHA-256 of a tensor's bytes.
std::string content_digest(const std::vector<ManifestTensor>& sorted_tensors, int64_t step,
                           int64_t samples,
                           const std::function<std::string(const ManifestTensor&)>& sha256_of);
std::string content_digest(const CheckpointReader& reader);

}  // namespace shoal
