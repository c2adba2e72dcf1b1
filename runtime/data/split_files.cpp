#include "runtime/data/split_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "runtime/base/text.h"
#include "runtime/data/file_fingerprint.h"

namespace shoal {

std::vector<std::string> paths_in(const std::string& folder,
                                  const std::vector<std::string>& files) {
  std::vector<std::string> paths;
  for (const std::string& file : files) {
    paths.push_back((std::filesystem::path(folder) / file).lexically_normal().string());
  }
  return paths;
}

std::vector<std::string> both(std::vector<std::string> first,
                              const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

void refuse_repeated(const std::vector<std::string>& train, const std::vector<std::string>& valid,
                     Problems& problems, std::string_view key) {
  for (const auto* paths : {&train, &valid}) {
    std::set<std::string> seen;
    for (const std::string& path : *paths) {
      if (seen.insert(path).second) continue;
      problems.add(fmt::format("{}.{}", paths == &train ? "train" : "valid", key),
                   path + " is named twice");
    }
  }
}

void refuse_shared(const std::vector<std::string>& train, const std::vector<std::string>& valid,
                   Problems& problems, std::string_view key) {
  for (const std::string& path : valid) {
    if (std::find(train.begin(), train.end(), path) == train.end()) continue;
    problems.add(fmt::format("valid.{}", key),
                 fmt::format("{} is trained on as well; set train.{} without it", path, key));
  }
}

std::string fingerprint_of(const std::vector<std::string>& paths) {
  std::vector<std::string> parts;
  for (const std::string& path : paths) parts.push_back(file_fingerprint(path));
  return join_words(parts);
}

}  // namespace shoal
