#pragma once

#include <set>
#include <string>

#include "launch/model/model_weights.h"
#include "launch/recipe/recipe.h"
#include "parallel/checkpoint/manifest.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Hint below the message of tokenizer_mismatch: what an identity holds, and what to do.
constexpr const char* kTokenizerHint =
    "its name, and the SHA-256 of what its files hold; set data.tokenizer to the one that the "
    "model was trained with, or put its files back";

/// Returns a message if the checkpoint was trained with another tokenizer than `identity` (its name
/// and a hash, Tokenizer::identity); "" if they are equal or one is unknown.
std::string tokenizer_mismatch(const Manifest& manifest, const std::string& identity);

/// Returns the paths of the MoE layers whose routers assign tokens by run.seed (hash routing).
std::set<std::string> seeded_layers(const BuiltModel& model);

/// Throws Error (exit 12) with the message of tokenizer_mismatch, if there is one.
void require_own_tokenizer(const Manifest& manifest, const std::string& identity);

/// Throws Error (exit 12) if the model has seeded_layers and the checkpoint another run.seed.
void require_own_seed(const Manifest& manifest, const Recipe& recipe, const BuiltModel& model);

/// True if the checkpoint has moving averages (EMA) of its weights (train.average).
bool has_averages(const Manifest& checkpoint);

/// Returns the name of the average of `weight` if the checkpoint has one, else `weight`.
/// Checkpoints store a stack of experts one by one, so pass the name of a single expert's weight.
std::string averaged_name(const Manifest& checkpoint, const std::string& weight);

/// Fills the model's tensors in `weights`: `list` (parameters and buffers, named as in the
/// checkpoint) and `sparse` (masks, permutations, scores of unchosen mask cells). What the
/// checkpoint lacks of `sparse` stays as it is in the model: layers without a mask stay dense.
/// Loads a weight's average if there is one, unless `raw_weights`. Call require_own_tokenizer and
/// require_own_seed first. Collective. Throws Error (exit 12) if names or shapes differ, or if the
/// model lacks a weight's permutation, scores or low-rank term U V; CheckpointError for a bad file.
void load_weights(const std::string& checkpoint, ModelWeights weights, Communicator& world,
                  bool raw_weights = false);

/// Fills `weights` as load_weights does, but the checkpoint must have all of weights.sparse. For
/// callers that choose or rename weights, after taken_state. Collective. Throws as load_weights.
void load_tensors(const std::string& checkpoint, const Manifest& manifest, ModelWeights weights,
                  Communicator& world, bool raw_weights);

}  // namespace shoal
