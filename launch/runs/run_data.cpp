#include "launch/runs/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "launch/pages/picture.h"
#include "launch/runs/run_folder.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/files/data_file.h"
#include "runtime/options/config_writer.h"
#include "runtime/yaml/yaml_reader.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kRunHint =
    "name a folder that `shoal train` writes, <run.root>/<run.name>, such as runs/quickstart";

void require_run_folder(const fs::path& folder) {
  require_path(folder);
  if (fs::exists(folder / "manifest.json")) {
    throw DataError(fmt::format("'{}' is a checkpoint, not a run", folder.string()), kRunHint);
  }
  for (const char* name : {"resolved.yaml", "metrics.jsonl", "env.json", "summary.json"}) {
    if (fs::exists(folder / name)) return;
  }
  throw DataError(
      fmt::format("'{}' is not a run: it has none of resolved.yaml, metrics.jsonl, env.json and "
                  "summary.json",
                  folder.string()),
      kRunHint);
}

void note_unread(const char* name, const UnreadLines& unread, RunData& run) {
  if (unread.broken == 0) return;
  run.problems.push_back(
      fmt::format("{}: {} broken, left out; the first is line {}", name,
                  unread.broken == 1 ? "1 line is" : fmt::format("{} lines are", unread.broken),
                  unread.first_broken));
}

void read_metrics_file(const fs::path& folder, RunData& run) {
  double hours = 0, samples_before = 0;
  const auto add_hours = [&](const FlatRecord& record) {
    const double rate = record.number("samples_per_second", 0.0);
    const double samples = record.number("samples", 0.0);
    if (rate > 0) hours += (samples - samples_before) / rate / 3600;
    samples_before = samples;
    if (record.find("samples") != nullptr) run.hours.add(record.number("step", 0.0), hours);
  };
  const auto use = [&](const FlatRecord& record) {
    run.last_step = std::max(run.last_step, record.number("step", 0.0));
    if (record.text("event") == "eval") {
      run.evaluations.add(record);
    } else if (record.text("event").empty()) {
      run.steps.add(record);
      add_hours(record);
      if (record.find("skipped") != nullptr) ++run.skipped_steps;
    }
  };
  note_unread("metrics.jsonl", for_each_flat_record((folder / "metrics.jsonl").string(), use), run);
}

void read_checkpoints(const fs::path& folder, RunData& run) {
  const std::string checkpoints = (folder / "ckpt").string();
  try {
    for (const int64_t step : list_checkpoints(checkpoints)) {
      if (auto facts = checkpoint_facts(checkpoints, step)) run.checkpoints.push_back(*facts);
    }
  } catch (const Error& error) {
    run.problems.emplace_back(error.what());
  }
}

void read_pictures(const fs::path& folder, RunData& run) {
  constexpr uintmax_t kMostBytes = uintmax_t{4} << 20;  // training writes about 1 MiB at most
  const fs::path file = folder / "pictures.png";
  if (!fs::exists(file)) return;
  if (fs::is_regular_file(file) && fs::file_size(file) <= kMostBytes) {
    std::string png = text_of_file(file);
    const std::optional<SampleSheet> sheet = read_sheet(png);
    const std::optional<PngHead> head = read_png_head(png);
    if (sheet) {
      run.pictures = RunPictures{*sheet, std::move(png), head->width, head->height};
      return;
    }
  }
  run.problems.emplace_back("pictures.png: none that training wrote, left out");
}

/// The comment after "  # " on the line; a # within quotes does not begin a comment.
std::string comment_of(const std::string& line) {
  const size_t at = line.rfind(" # ");
  if (at == std::string::npos || line.find('"', at) != std::string::npos) return "";
  return line.substr(at + 3);
}

}  // namespace

std::vector<LayerRecords> read_layers(const std::string& file, UnreadLines& unread,
                                      double last_step) {
  std::vector<LayerRecords> layers;
  size_t guess = 0;  // layers follow each other in the same order at each step
  unread = for_each_flat_record(file, [&](const FlatRecord& record) {
    const double step = record.number("step", 0.0);
    if (step > last_step) return;
    const std::string_view layer = record.text("layer");
    if (layers.empty() || layers[guess = (guess + 1) % layers.size()].layer != layer) {
      const auto found = std::ranges::find(layers, layer, &LayerRecords::layer);
      guess = static_cast<size_t>(found - layers.begin());
      if (found == layers.end()) layers.push_back({std::string(layer), {}, {}});
    }
    layers[guess].numbers.add(record);
    for (size_t i = 0; i < record.size(); ++i) {
      if (record[i].kind != FlatRecord::Kind::kNumbers) continue;
      layers[guess].lists[record[i].key].add(static_cast<int64_t>(step), record[i].numbers);
    }
  });
  return layers;
}

Json read_object(const std::string& file, std::vector<std::string>& problems) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return Json::object();
  Json json = Json::parse(text_of_file(file), nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  problems.push_back(fs::path(file).filename().string() + ": no JSON object, left out");
  return Json::object();
}

std::optional<CheckpointFacts> checkpoint_facts(const std::string& folder, int64_t step) {
  const std::string path = folder + "/" + step_folder(step);
  CheckpointFacts facts{step, {}, 0, ""};
  try {
    const CheckpointReader reader(path);
    facts.score = reader.manifest().score;
    facts.bytes = reader.manifest().total_bytes();
  } catch (const Error& error) {
    // A running training removes old checkpoints, each by a rename first.
    if (!fs::exists(path)) return std::nullopt;
    facts.damage = error.what();
  }
  return facts;
}

std::vector<RecipeValue> recipe_values(const std::string& text) {
  config::Diagnostics mistakes;
  const config::Position start{std::make_shared<const config::Source>(), 1, 1};
  const std::optional<config::Node> root = config::read_yaml(text, start, "", mistakes);
  if (!root || root->kind != config::Node::Kind::kMap) return {};
  const std::vector<std::string> lines = split(text, '\n');
  std::vector<RecipeValue> values;
  for (const config::Difference& leaf : config::diff({}, *root)) {
    if (!leaf.after) continue;
    const config::Node* node = config::find_node(*root, leaf.path);  // none if a key has a dot
    const size_t place =
        node == nullptr ? lines.size() : static_cast<size_t>(node->position.line) - 1;
    values.push_back(
        {leaf.path, *leaf.after, place < lines.size() ? comment_of(lines[place]) : ""});
  }
  return values;
}

RunData read_run(const std::string& path) {
  const fs::path folder(path);
  RunData run;
  run.path = path;
  try {
    require_run_folder(folder);
    run.name = fs::canonical(folder).filename().string();
    run.env = read_object(folder / "env.json", run.problems);
    run.summary = read_object(folder / "summary.json", run.problems);
    run.confusion = read_object(folder / "confusion.json", run.problems);
    run.recipe = recipe_values(text_of_file(folder / "resolved.yaml"));
    read_metrics_file(folder, run);
    for (const auto& [name, layers] : {std::pair{"experts.jsonl", &run.experts},
                                       {"gates.jsonl", &run.gates},
                                       {"permutations.jsonl", &run.permutations},
                                       {"layers.jsonl", &run.norms}}) {
      UnreadLines unread;
      *layers = read_layers((folder / name).string(), unread);
      note_unread(name, unread, run);
    }
    read_pictures(folder, run);
    read_checkpoints(folder, run);
  } catch (const fs::filesystem_error& error) {
    throw DataError(fmt::format("'{}' cannot be read: {}", path, error.what()), kRunHint);
  }
  return run;
}

}  // namespace shoal
