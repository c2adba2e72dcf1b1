#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "launch/recipe/recipe.h"
#include "moe/moe_stage.h"
#include "parallel/comm/communicator.h"
#include "runtime/yaml/config_node.h"

namespace shoal {

/// Returns what parallel.expert_ranks: auto stands for: the largest number that divides `world`
/// ranks, and the units (such as experts) of each stage unless the recipe allows uneven shares; 1
/// without stages.
int64_t choose_expert_ranks(const ParallelOptions& parallel,
                            const std::vector<MoeStageInfo>& stages, int64_t world);

/// Checks that a model fits `world` ranks (unset: not known yet). `stages`: its layers that route
/// tokens to units (experts or memory units); null if the model has mistakes. `knows_train`: false
/// if the section `train` could not be read; chunks are then not checked. Adds mistakes at their
/// places in the recipe, with the arithmetic and the valid choices: ranks that are not expert_ranks
/// × replicas; nodes of unequal size; a stage with fewer units than expert_ranks, or units that do
/// not divide evenly by it without parallel.uneven; chunks (exchange.chunks) without tokens.
void check_ranks(const LoadedRecipe& loaded, const std::vector<MoeStageInfo>* stages,
                 std::optional<int64_t> world, bool knows_train, config::Diagnostics& diagnostics);

/// Throws ConfigError (exit 11) with the mistakes that check_ranks finds, one line each, when the
/// number of ranks becomes known after the recipe was checked.
void check_topology(const LoadedRecipe& loaded, const std::vector<MoeStageInfo>& stages,
                    int64_t world);

/// True if a stage exchanges rows (routed tokens) between nodes first, then inside each node.
bool has_hierarchical_exchange(const std::vector<MoeStageInfo>& stages);

/// Returns the ranks of a node, for make_rank_grid: 0 if no stage has a hierarchical exchange, else
/// parallel.ranks_per_node, by default those of a machine. Collective. The default throws
/// ConfigError (exit 11) if machines have unequal numbers of ranks or non-consecutive ranks.
int64_t ranks_per_node(const ParallelOptions& parallel, const std::vector<MoeStageInfo>& stages,
                       Communicator& world);

}  // namespace shoal
