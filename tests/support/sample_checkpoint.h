#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/checkpoint/checkpoint_files.h"

namespace shoal::testing {

struct SampleCheckpoint {
  std::string run_id = "run-a";
  int64_t step = 10;
  int64_t num_shards = 2;
  int64_t rows = 5;  ///< of the larger tensors
  std::optional<double> score = {};
};

/// The tensors of one shard: every dtype, a scalar, an empty one, an expert.
inline std::vector<SafetensorsEntry> sample_entries(const SampleCheckpoint& sample, int64_t shard) {
  const std::string id = std::to_string(shard);
  return {{"layer" + id + ".experts." + id + ".fc1.weight", Dtype::kF32, {sample.rows, 3}, 0, 0},
          {"layer" + id + ".weight", Dtype::kF64, {sample.rows}, 0, 0},
          {"layer" + id + ".half", Dtype::kBF16, {3}, 0, 0},
          {"layer" + id + ".mask", Dtype::kBool, {2, 2}, 0, 0},
          {"layer" + id + ".empty", Dtype::kI64, {0, 4}, 0, 0},
          {"layer" + id + ".count", Dtype::kI64, {}, 0, 0}};
}

inline std::string sample_data(uint64_t bytes, int64_t shard, int64_t step) {
  std::string data(bytes, '\0');
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<char>((i * 37 + i / 251 + static_cast<size_t>(shard * 11 + step)) & 0xFF);
  }
  return data;
}

/// Saves as the ranks of a run would, one after the other, and returns the checkpoint's path.
inline std::string save_sample(FileSystem& files, const std::string& folder,
                               const SampleCheckpoint& sample = {}) {
  const std::string temporary = make_save_folder(files, folder, sample.step);
  Manifest manifest;
  manifest.run_id = sample.run_id;
  manifest.step = sample.step;
  manifest.samples = sample.step * 32;
  manifest.score = sample.score;
  manifest.recipe = "model:\n  backbone: \"sparse_mlp\"\n";
  manifest.written_by = {{"shoal", "0.1.0"}, {"world", std::to_string(sample.num_shards)}};
  manifest.values = {
      {"loss_ema", 0.1}, {"note", std::string("a \"quoted\"\tone")}, {"t", int64_t{-3}}};
  for (int64_t shard = 0; shard < sample.num_shards; ++shard) {
    const ShardLayout layout = lay_out_shard(sample_entries(sample, shard), sample.run_id,
                                             sample.step, shard, sample.num_shards);
    const std::string data = sample_data(layout.data_bytes(), shard, sample.step);
    add_shard(manifest, layout, write_shard(files, temporary, layout, data));
  }
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  const std::string path = commit_checkpoint(files, folder, temporary, manifest);
  write_latest(files, folder, sample.step);
  return path;
}

}  // namespace shoal::testing
