#pragma once

#include <string>

#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "launch/weights/taken_sparse_state.h"
#include "parallel/checkpoint/manifest.h"

namespace shoal {

/// Initialises the model from another checkpoint or run, named by model.init_from; does nothing
/// without that key. A partial load chooses weights (init_from.take) or renames them (.rename);
/// weights of the model without a source stay random. model.upcycle copies each MLP of a dense
/// checkpoint to the experts in its place. Collective. `tokenizer`: the data's Tokenizer::identity.
///
/// Returns a line for the log, "" without model.init_from: the checkpoint's path, whether its
/// averaged weights were loaded and, without model.upcycle, describe_other_function. A partial load
/// adds the numbers of weights that were loaded and that stay random.
///
/// Throws CheckpointError for a bad file, Error (exit 12) if shapes or sparse layers differ, and:
/// - Partial load: if no weight is found, or an entry of `take` or `rename` matches nothing.
/// - Other loads: if names or the tokenizer differ.
/// - Without upcycle: if experts of a hash router, which assigns tokens by run.seed and layer, come
///   from another seed or layer.
/// - With upcycle: if keys of `model` differ that do not concern experts; and as load_upcycled.
std::string load_initial_weights(const BuiltModel& model, const Recipe& recipe,
                                 const std::string& tokenizer, Communicator& world);

/// The checkpoint that `init_from` names. Throws Error (exit 2) with near names if nothing is
/// there.
std::string initial_checkpoint(const InitFrom& init_from);

/// The checkpoint's names, of what `init_from` takes, by what the model calls them: the first entry
/// of `rename` that a name begins with replaces that part of it. Throws Error (exit 12) if an entry
/// of `take` or `rename` matches nothing.
SourceOf chosen_names(const Manifest& manifest, const InitFrom& init_from);

/// Describes why an evaluation of the model would not compute what the checkpoint's own model does:
/// keys of `model` that differ and do not only affect training, and tensors without a place in the
/// model, on new lines; "" if there are none. `taken` selects weights, by default all. Collective.
std::string describe_other_function(const Manifest& manifest, const Recipe& recipe,
                                    const BuiltModel& model, Communicator& world,
                                    const InitFrom& taken = {});

}  // namespace shoal
