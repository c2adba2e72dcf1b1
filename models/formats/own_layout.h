#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/formats/foreign_weights.h"
#include "models/formats/weight_format.h"
#include "parallel/checkpoint/state_list.h"

namespace shoal {

/// Shoal's own layout of exported weights, for every backbone and task: `--to safetensors` and
/// `--as safetensors`. Names and shapes are those of a checkpoint: each expert of a stack is stored
/// as tensors of its own, by its global id: `….experts.17.fc1.weight` [in, out].
inline constexpr std::string_view kOwnLayout = "safetensors";

/// Origin of exported weights, stored in the file's metadata.
struct WeightOrigin {
  std::string recipe;     ///< of the checkpoint, as YAML
  int64_t step = 0;       ///< of the checkpoint
  std::string shoal;      ///< version and revision of the program that exported them
  std::string tokenizer;  ///< Tokenizer::identity(); empty if the checkpoint has none
};

/// Metadata of a file: `format` (pt, which readers of PyTorch expect), `shoal_recipe`,
/// `shoal_step`, `shoal_version` and, if known, `shoal_tokenizer`.
std::map<std::string, std::string> to_metadata(const WeightOrigin& origin);

/// Reads the origin back. Throws Error (exit 12) for a file without a recipe, CheckpointError for a
/// step that is not a number.
WeightOrigin origin_of(const ForeignWeights& weights);

/// Lists every weight of the model under its own name.
std::vector<WeightName> own_names(const StateList& model);

}  // namespace shoal
