#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/formats/foreign_config.h"
#include "runtime/files/safetensors.h"
#include "runtime/files/untrusted_file.h"

namespace shoal {

/// Reader for a model saved by another program, such as Hugging Face transformers or timm: tensors
/// in safetensors files and, if present, a config.json. Files are not trusted: throws
/// CheckpointError (exit 20) with the file's name if one cannot be read or is malformed.
class ForeignWeights {
 public:
  struct Tensor {
    Dtype dtype = Dtype::kF32;
    std::vector<int64_t> shape;
    size_t file = 0;              ///< index among the files
    uint64_t begin = 0, end = 0;  ///< byte range in the file
    std::string stored_name;      ///< name in the file, which strip() may shorten
  };

  /// `path`: a folder with model.safetensors, or with model.safetensors.index.json and the shards
  /// it lists; or one safetensors file, with an optional config.json beside it. Symbolic links are
  /// followed, since Hugging Face's caches consist of them.
  explicit ForeignWeights(const std::string& path);

  const std::string& path() const { return path_; }
  /// The folder that holds the files.
  const std::string& folder() const { return folder_; }
  const ForeignConfig& config() const { return config_; }
  /// Metadata of all files; for a repeated key, the first file's value.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  /// Returns null if there is no tensor of this name.
  const Tensor* find(std::string_view name) const;
  /// Returns a tensor's shape, for deriving model sizes from weights. Throws Error (exit 12) with
  /// its name if it is missing, has another number of dimensions, or a size outside 1 to 2^31 - 1.
  const std::vector<int64_t>& shape_of(std::string_view name, size_t num_dims) const;
  /// Counts blocks: the numbers 0, 1, … that follow `prefix` in tensor names, up to a gap.
  int64_t count_blocks(std::string_view prefix) const;
  /// Removes `prefix` from all names that begin with it.
  void strip(std::string_view prefix);
  torch::Tensor read(const Tensor& tensor) const;

 private:
  std::string path_, folder_;
  ForeignConfig config_;
  std::vector<UntrustedFile> files_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Tensor, std::less<>> tensors_;

  void add_file(const std::string& path);
  void add_shards(const std::string& index_path);
};

}  // namespace shoal
