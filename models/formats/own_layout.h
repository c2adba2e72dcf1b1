#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/formats/foreign_weights.h"
#include "models/formats/weight_format.h"
#include "parallel/checkpoint/state_list.h"

namespace shoal {

/// Shoal's own layout of exported weights, for every backbone and task (`shoal export --to` and
/// `import --as safetensors`). Names and shapes are a checkpoint's, but each expert of a stack has
/// tensors of its own, named by global id: `….experts.17.fc1.weight` [in, out].
inline constexpr std::string_view kOwnLayout = "safetensors";

/// Origin of exported weights, stored in the file's metadata.
struct WeightOrigin {
  std::string recipe;     ///< of the checkpoint, as YAML
  std::string step;       ///< of the checkpoint
  std::string shoal;      ///< version and revision of the exporting program
  std::string tokenizer;  ///< Tokenizer::identity(); empty: unknown
};

/// Metadata of an exported file: `format` (pt, which PyTorch readers expect), `shoal_recipe`,
/// `shoal_step`, `shoal_version` and, if known, `shoal_tokenizer`.
std::map<std::string, std::string> to_metadata(const WeightOrigin& origin);

/// Reads the origin back. Throws Error (exit 12) for a file without a recipe.
WeightOrigin origin_of(const ForeignWeights& weights);

/// Pairs each weight of the model with itself: foreign names equal Shoal's names.
std::vector<WeightName> own_names(const StateList& model);

}  // namespace shoal
