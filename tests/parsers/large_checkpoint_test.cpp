#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "parallel/checkpoint/checkpoint_files.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/save_plan.h"
#include "tests/support/peak_memory.h"
#include "tests/support/scratch_folder.h"

// Sanitizers take minutes for it.
#if !defined(__SANITIZE_ADDRESS__)

namespace shoal {
namespace {

using testing::peak_bytes_of;
using testing::ScratchFolder;

constexpr int64_t kNumUnits = 65'536;

/// Four parameters of each unit, each with two moments, of one number.
std::vector<SafetensorsEntry> entries_of_all_units() {
  std::vector<SafetensorsEntry> entries;
  for (const char* parameter : {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}) {
    for (int64_t unit = 0; unit < kNumUnits; ++unit) {
      const std::string name =
          fmt::format("backbone.blocks.11.channel_moe.experts.{}.{}", unit, parameter);
      entries.push_back({name, Dtype::kF32, {1}, 0, 0});
      entries.push_back({"optimizer." + name + ".m", Dtype::kF32, {1}, 0, 0});
      entries.push_back({"optimizer." + name + ".v", Dtype::kF32, {1}, 0, 0});
    }
  }
  return entries;
}

class LargeCheckpoint : public ::testing::Test {
 protected:
  ScratchFolder scratch_;
  PosixFileSystem files_;
  std::vector<SafetensorsEntry> entries_ = entries_of_all_units();

  /// Saves as one rank that holds all, and returns the checkpoint's path.
  std::string save() {
    const std::string folder = scratch_.file("ckpt");
    const std::string temporary = make_save_folder(files_, folder, 10);
    const std::vector<PlannedShard> plan = plan_shards(plan_save({describe_entries(entries_)}));
    Manifest manifest;
    manifest.step = 10;
    for (const PlannedShard& shard : plan) {
      const ShardLayout layout =
          lay_out_shard(shard.entries, "", 10, static_cast<int64_t>(manifest.files.size()),
                        static_cast<int64_t>(plan.size()));
      const std::string data(layout.data_bytes(), '\x5a');
      add_shard(manifest, layout, write_shard(files_, temporary, layout, data));
    }
    std::sort(manifest.tensors.begin(), manifest.tensors.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return commit_checkpoint(files_, folder, temporary, manifest);
  }
};

TEST_F(LargeCheckpoint, Of65536UnitsWithMomentsIsSavedAndReadInBoundedMemory) {
  const std::string path = save();
  int64_t total = 0;
  uint64_t num_files = 0;
  for (const auto& file : std::filesystem::directory_iterator(path)) {
    total += static_cast<int64_t>(file.file_size());
    ++num_files;
  }
  const int64_t peak = peak_bytes_of([&] {
    const CheckpointReader reader(path);
    reader.verify_data();
    if (reader.manifest().tensors.size() != entries_.size()) std::abort();
  });
  EXPECT_LT(peak, 2 * total);

  const CheckpointSize expected = estimate_checkpoint(entries_, 1);
  const auto manifest = std::filesystem::file_size(path + "/" + kManifestName);
  EXPECT_LT(manifest, expected.manifest_bytes);
  EXPECT_GT(manifest, expected.manifest_bytes * 3 / 4);
  EXPECT_LT(expected.manifest_bytes, kLargestManifest);
  EXPECT_EQ(expected.data_bytes, 4 * entries_.size());
  EXPECT_GT(num_files, 2u);  // one header does not hold all names
  EXPECT_LE(num_files, 1 + expected.num_shards);
}

}  // namespace
}  // namespace shoal

#endif
