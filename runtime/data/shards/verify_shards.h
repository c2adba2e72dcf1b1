#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// Looking ends at so many findings.
inline constexpr int64_t kMostFindings = 20;

/// What is in shards and what is wrong with them.
struct VerifiedShards {
  int64_t num_shards = 0;
  int64_t num_samples = 0;
  int64_t bytes = 0;
  std::vector<std::string> findings;  ///< each names the file and, of a sample, its member
};

/// Reads every header and class of shards, compares their indices with them, as far as there are
/// any, and with `decodes` decodes every image.
VerifiedShards verify_shards(const std::vector<std::string>& paths, bool decodes);

}  // namespace shoal
