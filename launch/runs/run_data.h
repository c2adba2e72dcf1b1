#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/pages/sample_sheet.h"
#include "launch/runs/curve.h"
#include "runtime/records/flat_record.h"

namespace shoal {

/// Records of one layer, from a file with a record per layer and logged step (experts.jsonl).
struct LayerRecords {
  std::string layer;
  CurveSet numbers;                          ///< metrics with one number per record
  std::map<std::string, ListHistory> lists;  ///< metrics with a list, such as each unit's load
};

/// What a report shows of a checkpoint, or the reason why it cannot be read.
struct CheckpointFacts {
  int64_t step = 0;
  std::optional<double> score;
  uint64_t bytes = 0;
  std::string damage;  ///< reason; empty: readable
};

/// One value of resolved.yaml, the recipe that a run wrote with all defaults.
struct RecipeValue {
  std::string path, text;  ///< dotted key, and value as YAML
  std::string origin;      ///< where it was set: file and line, command line, default; "": unknown
};

/// A run's pictures.png: samples of its last evaluation.
struct RunPictures {
  SampleSheet sheet;
  std::string png;
  int64_t width = 0, height = 0;  ///< pixels
};

/// Contents of the folder of a run, for the report, as far as they exist.
struct RunData {
  std::string path, name;
  CurveSet steps, evaluations;  ///< metrics.jsonl: of training steps, of evaluations
  Curve hours{"hours"};         ///< of training, evaluations left out, at the records of `samples`
  int64_t skipped_steps = 0;    ///< number of logged skipped steps
  double last_step = 0;         ///< last logged step
  std::vector<LayerRecords> experts, gates, permutations;
  std::vector<LayerRecords> norms;  ///< layers.jsonl
  std::optional<RunPictures> pictures;
  std::vector<CheckpointFacts> checkpoints;
  std::vector<RecipeValue> recipe;
  nlohmann::ordered_json env, summary, confusion;  ///< objects; empty without the file
  std::vector<std::string> problems;               ///< files and lines that could not be read
};

/// Reads a run folder, even while the run is going on: an incomplete last line is ignored; other
/// invalid lines and files are listed in `problems`. Throws DataError if the folder is not a run's,
/// and as require_path.
RunData read_run(const std::string& path);

/// Reads a file with a record per layer and logged step up to `last_step`; `unread` tells the lines
/// that are none.
std::vector<LayerRecords> read_layers(const std::string& file, UnreadLines& unread,
                                      double last_step = INFINITY);

/// Returns the JSON object in a file, an empty one if there is no file or, with a line in
/// `problems`, if the file holds something else.
nlohmann::ordered_json read_object(const std::string& file, std::vector<std::string>& problems);

/// Facts of the checkpoint of this step in a folder of checkpoints; nothing if it was removed since
/// it was listed, for example by a training.
std::optional<CheckpointFacts> checkpoint_facts(const std::string& folder, int64_t step);

/// Parses a recipe written by config::emit, with its comments as origins; empty if it is not one.
std::vector<RecipeValue> recipe_values(const std::string& text);

}  // namespace shoal
