#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/recipe/config.h"

/// What sources share whose splits are files: `path`, `train.files`, `valid.files`. `key`: what a
/// split's list is called, if not `files`.
namespace shoal {

/// The files of a folder as they will be opened.
std::vector<std::string> paths_in(const std::string& folder, const std::vector<std::string>& files);

/// The one list behind the other.
std::vector<std::string> both(std::vector<std::string> first,
                              const std::vector<std::string>& second);

/// Refuses a file that a split names twice.
void refuse_repeated(const std::vector<std::string>& train, const std::vector<std::string>& valid,
                     Problems& problems, std::string_view key = "files");

/// Refuses a file that both splits name.
void refuse_shared(const std::vector<std::string>& train, const std::vector<std::string>& valid,
                   Problems& problems, std::string_view key = "files");

/// The fingerprints of the files.
std::string fingerprint_of(const std::vector<std::string>& paths);

}  // namespace shoal
