#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/options/config.h"

/// Checks shared by sources whose splits are lists of files: `train.files` and `valid.files` in the
/// folder `path`. `key`: the name of both lists if not `files`.
namespace shoal {

/// The paths of files in a folder.
std::vector<std::string> paths_in(const std::string& folder, const std::vector<std::string>& files);

/// `first`, followed by `second`.
std::vector<std::string> both(std::vector<std::string> first,
                              const std::vector<std::string>& second);

/// Adds a problem for each file listed twice in one split.
void refuse_repeated(const std::vector<std::string>& train, const std::vector<std::string>& valid,
                     Problems& problems, std::string_view key = "files");

/// Adds a problem for each file listed in both splits.
void refuse_shared(const std::vector<std::string>& train, const std::vector<std::string>& valid,
                   Problems& problems, std::string_view key = "files");

/// The fingerprints of all files (file_fingerprint), in their order.
std::string fingerprint_of(const std::vector<std::string>& paths);

}  // namespace shoal
