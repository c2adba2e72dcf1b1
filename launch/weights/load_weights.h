#pragma once

#include <set>
#include <string>

#include "launch/model/model_weights.h"
#include "launch/recipe/recipe.h"
#include "parallel/checkpoint/manifest.h"
#include "parallel/comm/communicator.h"

namespace shoal {

constexpr const char* kTokenizerHint =
    "its name, and the SHA-256 of what its files hold; set data.tokenizer to the one that the "
    "model was trained with, or put its files back";

/// Message if a checkpoint has another tokenizer than this one (Tokenizer::identity); "" if they
/// are equal or one is unknown.
std::string tokenizer_mismatch(const Manifest& manifest, const std::string& identity);

/// Paths of the MoE layers whose routers assign tokens by run.seed.
std::set<std::string> seeded_layers(const BuiltModel& model);

/// Throws Error (exit 12) if the checkpoint has another tokenizer than this one
/// (Tokenizer::identity). Unknown ones on either side are accepted.
void require_own_tokenizer(const Manifest& manifest, const std::string& identity);

/// Throws Error (exit 12) if a router of the model assigns tokens by run.seed
/// (Router::assigns_by_seed) and the checkpoint's run.seed differs.
void require_own_seed(const Manifest& manifest, const Recipe& recipe, const BuiltModel& model);

/// True if the checkpoint has averages of its weights (train.average).
bool has_averages(const Manifest& checkpoint);

/// Name of a weight's average if the checkpoint has one, else the weight's own. For a stacked
/// weight, pass the name of one unit.
std::string averaged_name(const Manifest& checkpoint, const std::string& weight);

/// Fills weights, listed by the checkpoint's names, and takes nothing else of it: their averages
/// where it has some, unless `raw_weights`, and of their sparse state what it has (taken_state).
/// Collective. Throws Error (exit 12) if names or shapes differ or as taken_state, CheckpointError
/// if it is corrupt.
void load_weights(const std::string& checkpoint, ModelWeights weights, Communicator& world,
                  bool raw_weights = false);

/// Loads the weights, each from its average if the checkpoint has one, unless `raw_weights`.
/// Collective. Throws as load_checkpoint.
void load_tensors(const std::string& checkpoint, const Manifest& manifest, ModelWeights weights,
                  Communicator& world, bool raw_weights);

}  // namespace shoal
