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

/// A model that another program saved, opened for reading; its files are not trusted: tensors in
/// safetensors files, and config.json if there is one. Throws CheckpointError (exit 20) naming a
/// file that cannot be read or is malformed.
class ForeignWeights {
 public:
  struct Tensor {
    Dtype dtype = Dtype::kF32;
    std::vector<int64_t> shape;
    size_t file = 0;
    uint64_t begin = 0, end = 0;  ///< range of its bytes in the file
    std::string stored_name;
  };

  /// `path`: a folder with model.safetensors, or with model.safetensors.index.json and the shards
  /// that it lists; or one safetensors file, whose folder may have a config.json. Links are
  /// followed, since caches of Hugging Face's hub consist of them.
  explicit ForeignWeights(const std::string& path);

  const std::string& path() const { return path_; }
  /// Folder of the files.
  const std::string& folder() const { return folder_; }
  const ForeignConfig& config() const { return config_; }
  /// Metadata of all files; for a repeated key, the first file's value.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  /// Null if no tensor has this name.
  const Tensor* find(std::string_view name) const;
  /// Shape of a tensor, for deriving a model's sizes from its weights. Throws Error (exit 12)
  /// naming the tensor if it is missing, has another number of dimensions, or a size outside 1 to
  /// 2^31 - 1.
  const std::vector<int64_t>& shape_of(std::string_view name, size_t num_dims) const;
  /// Number of blocks: consecutive numbers from 0 that follow `prefix` in tensor names.
  int64_t count_blocks(std::string_view prefix) const;
  /// Removes `prefix` from the names that begin with it.
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
