#pragma once

#include <string>

#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "parallel/checkpoint/manifest.h"

namespace shoal {

/// Initialises the model from another checkpoint or run, named by model.init_from, for fine-tuning
/// or upcycling; does nothing without that key. Collective. `tokenizer`: Tokenizer::identity of the
/// data (the tokenizer's name and a hash); "": none.
///
/// Returns a line for the log, "" without model.init_from: the checkpoint's path, whether its
/// averaged weights were loaded, for a partial load the numbers of weights loaded and left random,
/// and describe_other_function. Throws CheckpointError if the checkpoint is corrupt; with
/// model.upcycle as load_upcycled. Throws Error (exit 12) if names or shapes of a whole load
/// differ, if no weight or no match of a pattern is found, if a whole load has another tokenizer,
/// with model.upcycle if model keys other than those of its experts differ, and if experts whose
/// tokens depend on run.seed and the layer's name (Router::assigns_by_seed) would be loaded under
/// another of these.
std::string load_initial_weights(const BuiltModel& model, const Recipe& recipe,
                                 const std::string& tokenizer, Communicator& world);

/// Describes why an evaluation of the model would not compute what the checkpoint's own model does:
/// keys of `model` that differ (evaluated_differences) and tensors without a place in the model,
/// each after a line end; "" if there are none. `taken`: selects weights. Collective.
std::string describe_other_function(const Manifest& manifest, const Recipe& recipe,
                                    const BuiltModel& model, Communicator& world,
                                    const InitFrom& taken = {});

}  // namespace shoal
