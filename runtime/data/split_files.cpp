#include "runtime/data/split_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/files/sha256.h"

namespace shoal {

std::vector<std::string> paths_in(const std::string& folder,
                                  const std::vector<std::string>& files) {
  std::vector<std::string> paths;
  for (const std::string& file : files) {
    paths.push_back((std::filesystem::path(folder) / file).lexically_normal().string());
  }
  return paths;
}

std::string without_links(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path found = std::filesystem::weakly_canonical(path, failed);
  return failed ? path : found.string();
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
    if (std::ranges::find(train, path) == train.end()) continue;
    problems.add(fmt::format("valid.{}", key),
                 fmt::format("{} is trained on as well; set train.{} without it", path, key));
  }
}

std::string file_fingerprint(const std::string& path) {
  constexpr int64_t kBlockBytes = 4096, kMostBlocksRead = 64;
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  const auto size = static_cast<int64_t>(file.tellg());
  const int64_t num_blocks = std::min(kMostBlocksRead, size / kBlockBytes + 1);
  const int64_t last = std::max<int64_t>(0, size - kBlockBytes);
  std::string sampled;
  std::vector<char> block(static_cast<size_t>(std::min(kBlockBytes, std::max<int64_t>(0, size))));
  for (int64_t i = 0; i < num_blocks; ++i) {
    file.seekg(num_blocks == 1
                   ? 0
                   : static_cast<int64_t>(static_cast<__int128>(last) * i / (num_blocks - 1)));
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    sampled.append(block.data(), block.size());
  }
  if (!file) throw DataError(path + ": cannot be read");
  return fmt::format("{} {} {}", std::filesystem::path(path).filename().string(), size,
                     sha256_hex(sampled).substr(0, 16));
}

std::string fingerprint_of(const std::vector<std::string>& paths) {
  std::vector<std::string> parts;
  for (const std::string& path : paths) parts.push_back(file_fingerprint(path));
  return join_words(parts);
}

}  // namespace shoal
