#include "runtime/data/file_fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/files/sha256.h"

namespace shoal {
namespace {

constexpr int64_t kBlockBytes = 4096;
constexpr int64_t kMostBlocksRead = 64;

}  // namespace

std::string file_fingerprint(const std::string& path) {
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

}  // namespace shoal
