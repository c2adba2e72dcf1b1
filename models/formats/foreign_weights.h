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

/// A model that another program saved, opened for reading without trust: tensors in safetensors
/// files, and its config.json where there is one. Throws CheckpointError (exit 20), which names the
/// file, if one of them cannot be read or is not what it should be.
class ForeignWeights {
 public:
  struct Tensor {
    Dtype dtype = Dtype::kF32;
    std::vector<int64_t> shape;
    size_t file = 0;
    uint64_t begin = 0, end = 0;  ///< of its bytes in the file
    std::string stored_name;
  };

  /// `path`: a folder with model.safetensors, or with model.safetensors.index.json and the shards
  /// that it lists; or one safetensors file, whose folder may have a config.json. Links are
  /// followed: caches of Hugging Face's hub consist of them.
  explicit ForeignWeights(const std::string& path);

  const std::string& path() const { return path_; }
  /// The folder of its files.
  const std::string& folder() const { return folder_; }
  const ForeignConfig& config() const { return config_; }
  /// Of all files; of a key that several have, that of the first one.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  /// Null if there is none of this name.
  const Tensor* find(std::string_view name) const;
  /// Throws Error (exit 12) that names the tensor if it is missing, has another number of
  /// dimensions, or a size that is none from 1 to 2^31 - 1: for reading a model's sizes off its
  /// weights.
  const std::vector<int64_t>& shape_of(std::string_view name, size_t num_dims) const;
  /// How many blocks there are: names that begin with `prefix` and a number, from 0 on.
  int64_t count_blocks(std::string_view prefix) const;
  /// From here on, names that begin with `prefix` are known without it.
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
