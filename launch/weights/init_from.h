#pragma once

#include <string>

#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "parallel/checkpoint/manifest.h"

namespace shoal {

/// Fills the parameters from model.init_from and returns a line for the log: the checkpoint's path,
/// whether its averaged weights were taken, if it is taken in part how many weights were taken and
/// which of the model's keep their random values, and describe_other_function; "" without one.
/// Collective. Throws as load_weights, with model.upcycle as
/// load_upcycled, and Error (exit 12) if other keys of the model than those that put experts into
/// it are not the checkpoint's, if none of the weights to be taken is there, if a pattern matches
/// nothing, or, unless it is taken in part, if its tokens are another tokenizer's; also if experts
/// of a hash router are taken into a layer with another run.seed or name, which decide their tokens
/// (Router::assigns_by_seed). `tokenizer`: Tokenizer::identity of the data; "": none.
std::string load_initial_weights(const BuiltModel& model, const Recipe& recipe,
                                 const std::string& tokenizer, Communicator& world);

/// Differences that keep the checkpoint's weights, of which `taken` selects some, from computing in
/// an evaluation what they did: keys of the model (evaluated_differences) and tensors without a
/// place in it, each after a line end; "" if there are none. Collective.
std::string describe_other_function(const Manifest& manifest, const Recipe& recipe,
                                    const BuiltModel& model, Communicator& world,
                                    const InitFrom& taken = {});

}  // namespace shoal
