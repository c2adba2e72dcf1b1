#pragma once

#include "launch/recipe/recipe.h"
#include "launch/runs/run_folder.h"
#include "launch/step/session.h"
#include "parallel/checkpoint/checkpoint.h"
#include "runtime/base/log.h"

namespace shoal {

struct ResumeOptions {
  /// Resume although fixed recipe keys differ, and pass over checkpoints that cannot be read.
  bool override_fixed = false;
  Log& log;
};

/// Fills the parameters from model.init_from and returns a line for the log: the checkpoint's path,
/// whether its averaged weights were taken, if it is taken in part how many weights were taken and
/// which of the model's keep their random values, and describe_other_function; "" without one.
/// Collective. Throws as load_weights, with model.upcycle as
/// load_upcycled, and Error (exit 12) if other keys of the model than those that put experts into
/// it are not the checkpoint's, if none of the weights to be taken is there, if a pattern matches
/// nothing, or, unless it is taken in part, if its tokens are another tokenizer's; also if experts
/// of a hash router are taken into a layer with another run.seed or name, which decide their tokens
/// (Router::assigns_by_seed).
std::string load_initial_weights(Session& session, const Recipe& recipe);

/// Gives a run that is to be resumed its first state: the newest valid checkpoint of its folder if
/// there is any, else the weights of model.init_from. Returns how checkpoints are to be written
/// from here. Collective. Throws Error (exit 12) if the recipe, the data or the tokenizer differs
/// from the checkpoint's, CheckpointError if none is valid, StorageError if the one to be resumed
/// from cannot be read.
CheckpointWriter::Options begin_or_resume(Session& session, const Recipe& recipe,
                                          const RunFolder& folder, const ResumeOptions& options);

/// Throws Error (exit 12) if the checkpoint names another tokenizer than this one
/// (Tokenizer::identity). Checkpoints that name none, and an empty identity, are accepted.
void require_own_tokenizer(const Manifest& manifest, const std::string& identity);

/// Throws Error (exit 12) if a router of the model assigns tokens by run.seed
/// (Router::assigns_by_seed) and the checkpoint's was another.
void require_own_seed(const Manifest& manifest, const Recipe& recipe, const BuiltModel& model);

/// What keeps weights of the checkpoint, those that `taken` chooses, from computing in an
/// evaluation what they did: keys of the model (evaluated_differences) and tensors without a place
/// in it, each after a line end; "" if nothing does. Collective.
std::string describe_other_function(const Manifest& manifest, const Recipe& recipe,
                                    const BuiltModel& model, Communicator& world,
                                    const InitFrom& taken = {});

/// Whether the checkpoint has averages of its weights (train.average).
bool has_averages(const Manifest& checkpoint);

/// The name of a weight's average, if the checkpoint has one; else the weight's own. Of a stacked
/// weight, of one of its units.
std::string averaged_name(const Manifest& checkpoint, const std::string& weight);

/// Fills weights, listed by the checkpoint's names, and takes nothing else of it: their averages
/// where it has some, unless `raw_weights`, and its permutations where it has some. Collective.
/// Throws Error (exit 12) if names or shapes differ or only the checkpoint's layers are permuted,
/// CheckpointError if it is corrupt.
void load_weights(const std::string& checkpoint, ModelWeights weights, Communicator& world,
                  bool raw_weights = false);

}  // namespace shoal
