#pragma once

#include <string>

#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "parallel/checkpoint/manifest.h"

namespace shoal {

/// Fills the parameters from model.init_from; does nothing without one. Collective. `tokenizer`:
/// Tokenizer::identity of the data; "": none.
///
/// Returns a line for the log, "" without model.init_from: the checkpoint's path, whether its
/// averaged weights were loaded, for a partial load the numbers of weights loaded and left random,
/// and describe_other_function.
/// Throws as load_weights and, with model.upcycle, as load_upcycled. Throws Error (exit 12) if
/// model keys other than those of its experts differ, if no weight or no match of a pattern is
/// found, if a whole load has another tokenizer, and if experts whose tokens depend on run.seed and
/// the layer's name (Router::assigns_by_seed) would be loaded under another of these.
std::string load_initial_weights(const BuiltModel& model, const Recipe& recipe,
                                 const std::string& tokenizer, Communicator& world);

/// Differences that keep the checkpoint's weights, of which `taken` selects some, from computing in
/// an evaluation what they did: keys of the model (evaluated_differences) and tensors without a
/// place in it, each after a line end; "" if there are none. Collective.
std::string describe_other_function(const Manifest& manifest, const Recipe& recipe,
                                    const BuiltModel& model, Communicator& world,
                                    const InitFrom& taken = {});

}  // namespace shoal
