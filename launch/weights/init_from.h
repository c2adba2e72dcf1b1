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
/// averaged weights were loaded and, without model.upcycle, describe_other_function. A partial load
/// (`take` or `rename`) adds the numbers of weights that were loaded and that stay random.
///
/// Throws CheckpointError if the checkpoint is corrupt. Throws Error (exit 12) if a partial load
/// finds no weight or a pattern no match; if names, shapes or the tokenizer differ in any other
/// load; and if experts of a router that assigns tokens by run.seed and the layer's name
/// (Router::assigns_by_seed) come from another seed or layer. With model.upcycle throws as
/// load_upcycled and, if keys of `model` other than those of experts differ, Error (exit 12).
std::string load_initial_weights(const BuiltModel& model, const Recipe& recipe,
                                 const std::string& tokenizer, Communicator& world);

/// Describes why an evaluation of the model would not compute what the checkpoint's own model does:
/// keys of `model` that differ (evaluated_differences) and tensors without a place in the model, on
/// new lines; "" if there are none. `taken` selects weights, by default all. Collective.
std::string describe_other_function(const Manifest& manifest, const Recipe& recipe,
                                    const BuiltModel& model, Communicator& world,
                                    const InitFrom& taken = {});

}  // namespace shoal
