#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/pages/sample_sheet.h"
#include "launch/runs/curve.h"

namespace shoal {

/// What a file with one record a layer and logged step says of one layer.
struct LayerRecords {
  std::string layer;
  CurveSet numbers;
  std::map<std::string, ListHistory> lists;  ///< by key: loads, rates by position
};

/// A committed checkpoint, or why it cannot be read.
struct CheckpointFacts {
  int64_t step = 0;
  std::optional<double> score;
  uint64_t bytes = 0;
  std::string damage;  ///< empty: none
};

/// One value of resolved.yaml.
struct RecipeValue {
  std::string path, text;
  std::string origin;  ///< where it was written: file and line, command line, default; "": unknown
};

/// pictures.png.
struct RunPictures {
  SampleSheet sheet;
  std::string png;
  int64_t width = 0, height = 0;  ///< pixels
};

/// What a run's folder says of it, whatever of it is there.
struct RunData {
  std::string path, name;
  CurveSet steps, evaluations;
  int64_t skipped_steps = 0;  ///< logged ones
  double last_step = 0;       ///< logged
  std::vector<LayerRecords> experts, gates, permutations;
  std::optional<RunPictures> pictures;
  std::vector<CheckpointFacts> checkpoints;
  std::vector<RecipeValue> recipe;
  nlohmann::ordered_json env, summary;  ///< objects; empty without the file
  std::vector<std::string> problems;    ///< files and lines that could not be read
};

/// Reads a run's folder, also while the run goes on: a last line that is cut is left out, other
/// broken lines and files are named in `problems`. Throws DataError if the folder is none of a run.
RunData read_run(const std::string& path);

/// Of the checkpoint of this step in a folder of them; nothing if it is gone, as one that a
/// training has removed since it was listed.
std::optional<CheckpointFacts> checkpoint_facts(const std::string& folder, int64_t step);

/// The values of a recipe that config::emit wrote, with their comments as origins; none if the text
/// is no recipe.
std::vector<RecipeValue> recipe_values(const std::string& text);

}  // namespace shoal
