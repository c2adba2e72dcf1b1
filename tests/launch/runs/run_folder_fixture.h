#pragma once

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "launch/pages/sample_sheet.h"
#include "models/task.h"
#include "runtime/records/metrics.h"
#include "tests/support/scratch_folder.h"

namespace shoal::testing {

/// What a drawn run's folder is filled with.
struct DrawnRun {
  std::string name = "drawn";
  int64_t lines = 100;  ///< logged steps, one after the other
  int64_t layers = 2, units = 4, memory_units = 0;
  int64_t gates = 0, permutations = 0, norms = 0;
  int64_t evaluations = 4;
  double loss = 0.5;  ///< at the end
  bool has_pictures = false;
  bool is_finished = true;
};

/// Numbers of a layer that are no constants.
inline MetricsRecord drawn_layer(const std::string& layer, int64_t step) {
  MetricsRecord record;
  record.add("step", step).add("layer", layer);
  return record;
}

inline std::string drawn_step(const DrawnRun& run, int64_t step) {
  const double done = static_cast<double>(step) / static_cast<double>(run.lines);
  MetricsRecord record;
  record.add("step", step).add("samples", step * 64);
  record.add_exact("loss", run.loss + 2 * (1 - done)).add("lr", 1e-3 * (1 - done));
  record.add_exact("grad_norm", 1.0 + 0.1 * static_cast<double>(step % 7));
  record.add("samples_per_second", 3200.0 + static_cast<double>(step % 11));
  record.add("data_wait", 0.01 * static_cast<double>(step % 3)).add("all_to_all_ms", 1.5);
  record.add("memory_bytes", int64_t{200'000'000} + step);
  if (run.layers > 0) record.add("moe_dropped", 0.1 * (1 - done)).add("moe_dead_units", int64_t{0});
  std::string text = record.to_json() + "\n";
  const int64_t every = std::max<int64_t>(1, run.lines / std::max<int64_t>(1, run.evaluations));
  if (run.evaluations == 0 || step % every != 0) return text;
  MetricsRecord evaluation;
  evaluation.add("step", step).add("event", std::string("eval"));
  evaluation.add("loss", run.loss + 1 - done).add("a_task_score", 0.9 * done);
  evaluation.add("samples", int64_t{1024}).add("seconds", 0.25);
  return text + evaluation.to_json() + "\n";
}

inline std::string drawn_experts(const DrawnRun& run, int64_t step) {
  const double done = static_cast<double>(step) / static_cast<double>(run.lines);
  std::string text;
  for (int64_t layer = 0; layer < run.layers; ++layer) {
    std::vector<int64_t> load;
    for (int64_t u = 0; u < run.units; ++u) load.push_back(100 + (u * 37 + step * 13 + layer) % 50);
    MetricsRecord record = drawn_layer(fmt::format("blocks.{}.moe", layer), step);
    record.add("load", load);
    if (run.memory_units > 0) record.add("memory_units", run.memory_units);
    record.add("router_entropy", 1 - 0.5 * done).add("dropped", 0.1 * (1 - done));
    record.add("dead_experts", int64_t{0});
    record.add("rank_overload", std::vector<double>{1 + 0.1 * done, 1 - 0.1 * done});
    text += record.to_json() + "\n";
  }
  return text;
}

/// A line a layer, of a number that grows at a pace of its own.
inline std::string drawn_layers(const char* name, const char* key, int64_t count, double done,
                                int64_t step) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    MetricsRecord record = drawn_layer(fmt::format("blocks.{}.{}", i, name), step);
    text += record.add(key, done / static_cast<double>(i + 1)).to_json() + "\n";
  }
  return text;
}

/// Gates whose tokens attend at the beginning of the text first, later at its end.
inline std::string drawn_gates(int64_t count, double done, int64_t step) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    MetricsRecord record = drawn_layer(fmt::format("blocks.{}.gate", i), step);
    record.add("rate", done / static_cast<double>(i + 1));
    record.add("rate_by_position", std::vector<double>{1 - done, done});
    text += record.to_json() + "\n";
  }
  return text;
}

/// Norms of layers that differ by powers of ten; the last layer has no update.
inline std::string drawn_norms(int64_t count, double done, int64_t step) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    MetricsRecord record = drawn_layer(fmt::format("blocks.{}.fc1", i), step);
    const double norm = (1 + done) * std::pow(10.0, static_cast<double>(-i % 6));
    const double update = i + 1 < count ? 1e-3 * norm * done : 0.0;
    record.add("weight_norm", norm).add("gradient_norm", norm / 3).add("update_norm", update);
    text += record.add("update_ratio", update / norm).to_json() + "\n";
  }
  return text;
}

/// Pictures of two samples, as a denoiser's evaluation draws them.
inline std::string drawn_pictures(int64_t step) {
  const auto even = [](double value) { return at::full({2, 3, 8, 8}, value, torch::kFloat32); };
  return sheet_png({{"clean", even(0.5)},
                    {"restored <b>", even(0.25), "PSNR (dB)", torch::tensor({12.0, 24.5})}},
                   step);
}

/// Writes a run's folder as training does, of numbers that are a function of step and layer.
inline std::string write_drawn_run(const ScratchFolder& scratch, const DrawnRun& run) {
  const std::string folder = scratch.file(run.name);
  std::filesystem::create_directories(folder + "/ckpt");
  std::string metrics, experts, gates, permutations, norms;
  for (int64_t step = 1; step <= run.lines; ++step) {
    const double done = static_cast<double>(step) / static_cast<double>(run.lines);
    metrics += drawn_step(run, step);
    experts += drawn_experts(run, step);
    gates += drawn_gates(run.gates, done, step);
    permutations += drawn_layers("fc1", "distance", run.permutations, done, step);
    norms += drawn_norms(run.norms, done, step);
  }
  write_file(folder + "/metrics.jsonl", metrics);
  write_file(folder + "/experts.jsonl", experts);
  if (run.gates > 0) write_file(folder + "/gates.jsonl", gates);
  if (run.permutations > 0) write_file(folder + "/permutations.jsonl", permutations);
  if (run.norms > 0) write_file(folder + "/layers.jsonl", norms);
  if (run.has_pictures) write_file(folder + "/pictures.png", drawn_pictures(run.lines));
  write_file(folder + "/resolved.yaml",
             fmt::format("run:\n  name: {}  # mine.yaml:1\n  seed: 1  # default\ntrain:\n"
                         "  batch: 64  # command line\n",
                         run.name));
  write_file(
      folder + "/env.json",
      R"({"build": {"torch": "2.11.0"}, "world": 2, "hosts": ["node1", "node1"],)"
      R"( "device": "cpu", "parameters": 12345, "tokens_per_sample": 100, "command": ["shoal", "train", "mine.yaml"], "starts": [)"
      R"({"step": 0, "time": "2026-01-02 03:04:05 UTC", "world": 2, "command": ["shoal"]}]})");
  if (!run.is_finished) return folder;
  write_file(folder + "/summary.json",
             fmt::format(R"({{"exit_code": 0, "steps": {}, "seconds": 61.5, "notes": )"
                         R"(["a note <b>"], "samples_per_second": 3300.0}})",
                         run.lines));
  return folder;
}

}  // namespace shoal::testing
