#pragma once

#include <string>
#include <vector>

#include "launch/model/build_model.h"
#include "launch/recipe/resume_rules.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Throws ConfigError, a line for each key to change, unless every layer with a router can start as
/// the dense MLP that it replaces: it must stand in an MLP's place, combine weights must sum to 1,
/// no token may be dropped and no expert shared, and experts must be plain MLPs with biases.
void check_upcycling(const BuiltModel& model);

/// Upcycling (Komatsuzaki et al. 2023, "Sparse Upcycling"): initialises the model from a dense
/// model's checkpoint. The experts of a MoE layer `X.moe` all start as copies of the dense MLP
/// `X.mlp`, its router keeps its own initial values, and all other weights are copied. Weights are
/// read from their averages (train.average) if the checkpoint has some, unless `raw_weights`. As
/// combine weights sum to 1, the new model's initial outputs are those of the dense one.
///
/// Collective. Throws as check_upcycling; Error (exit 12) if an MLP's shapes or activation differ
/// from its experts', naming both, if other names or shapes differ, or if a weight of the
/// checkpoint has no place in the model; CheckpointError if the checkpoint is corrupt.
void load_upcycled(const std::string& checkpoint, const BuiltModel& model, Communicator& world,
                   bool raw_weights = false);

/// Throws Error (exit 12) unless `differences`, the model keys that differ from the checkpoint's
/// (evaluated_differences), concern experts alone: other keys, such as the number of heads, can
/// change a model's outputs without changing a shape.
void require_same_model(std::vector<ChangedKey> differences);

}  // namespace shoal
