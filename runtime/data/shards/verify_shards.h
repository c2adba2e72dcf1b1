#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// Verification stops after this many findings.
inline constexpr int64_t kMostFindings = 20;

/// Totals of the shards and the problems found in them.
struct VerifiedShards {
  int64_t num_shards = 0;
  int64_t num_samples = 0;
  int64_t bytes = 0;
  std::vector<std::string> findings;  ///< each names the file and, for a sample, its member
};

/// Verifies shards, tar archives of images: reads every header and class, compares them with the
/// indices that exist, whose class names must be equal inside a folder, and, if `decodes`, decodes
/// every image. Problems are returned, not thrown.
VerifiedShards verify_shards(const std::vector<std::string>& paths, bool decodes);

}  // namespace shoal
