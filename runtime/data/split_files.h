#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/data_source.h"

/// Shared by data sources whose splits are lists of files in the folder data.path, recipe keys
/// data.train.files and data.valid.files. `key`: last part of both keys (tar_shards: `shards`).
namespace shoal {

/// Returns the path of each file: `folder` and its name, joined and normalised.
std::vector<std::string> paths_in(const std::string& folder, const std::vector<std::string>& files);

/// The absolute path with links resolved, as far as it exists.
std::string without_links(const std::string& path);

/// `first`, followed by `second`.
std::vector<std::string> both(std::vector<std::string> first,
                              const std::vector<std::string>& second);

/// Adds a problem, a mistake of the recipe, for each file listed twice in one split.
void refuse_repeated(const std::vector<std::string>& train, const std::vector<std::string>& valid,
                     Problems& problems, std::string_view key = "files");

/// Adds a problem for each file listed in both splits.
void refuse_shared(const std::vector<std::string>& train, const std::vector<std::string>& valid,
                   Problems& problems, std::string_view key = "files");

/// Identifies a data file, so that a resumed run notices if it changed. Returns "NAME SIZE HASH":
/// its name without folders, its bytes, and the first 16 digits of the SHA-256 of up to 64 evenly
/// spread blocks of 4 KiB, including the first and the last. Takes milliseconds for a large data
/// set; misses changes between the blocks. Throws DataError if the file cannot be read.
std::string file_fingerprint(const std::string& path);

/// Returns the fingerprint of each file, in their order.
std::string fingerprint_of(const std::vector<std::string>& paths);

/// Base of sources whose options give the files of a split: `paths(Split)`.
template <class SourceOptions>
class FilesSource : public DataSource {
 public:
  using Options = SourceOptions;

  explicit FilesSource(const Options& options) : options_(options) {}
  /// Reports a file that is in both splits.
  void check_training(Problems& problems) const override {
    refuse_shared(options_.paths(Split::kTrain), options_.paths(Split::kValid), problems);
  }
  std::vector<std::string> files(Split split) const override { return options_.paths(split); }

 protected:
  Options options_;
};

}  // namespace shoal
