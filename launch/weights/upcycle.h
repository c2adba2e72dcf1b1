#pragma once

#include <string>
#include <vector>

#include "launch/model/build_model.h"
#include "launch/recipe/resume_rules.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Throws ConfigError, lines under `model`, unless every MoE stage of the model can start as the
/// dense MLP that it replaces: there is one, the weights sum to 1 without drops, and the experts
/// are plain with biases.
void check_upcycling(const BuiltModel& model);

/// Upcycling (Komatsuzaki et al. 2023, "Sparse Upcycling"): fills the model's weights from a dense
/// model's checkpoint. The experts of a MoE layer `X.moe` all start as copies of the dense MLP
/// `X.mlp`, its router keeps its own first values, everything else is taken as it is. With combine
/// weights that sum to 1 the new model's outputs are at the start those of the dense one.
///
/// Averages and `raw_weights` as load_weights has them.
///
/// Collective. Throws as check_upcycling; Error (exit 12) if an MLP's shapes or activation are not
/// its experts', naming both, if names or shapes differ otherwise, or if a weight of the checkpoint
/// has no place in the model; CheckpointError if the checkpoint is corrupt.
void load_upcycled(const std::string& checkpoint, const BuiltModel& model, Communicator& world,
                   bool raw_weights = false);

/// Throws Error (exit 12) unless evaluated_differences are those of experts alone: the number of
/// heads, for example, changes a model's outputs, and no shape.
void require_same_model(std::vector<ChangedKey> differences);

}  // namespace shoal
