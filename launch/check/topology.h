#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "launch/recipe/recipe.h"
#include "moe/moe_stage.h"
#include "parallel/comm/communicator.h"
#include "runtime/yaml/config_node.h"

namespace shoal {

/// Adds a mistake, at its place in the recipe, for a world that is not expert_ranks × replicas, for
/// units that do not divide evenly by expert_ranks without parallel.uneven, for nodes of unequal
/// size, and for chunks without tokens; each with the arithmetic and the valid choices. `stages`:
/// null if the model has mistakes. `world`: nothing if it is not known yet. `knows_train`: false if
/// the section `train` could not be read.
void check_ranks(const LoadedRecipe& loaded, const std::vector<MoeStageInfo>* stages,
                 std::optional<int64_t> world, bool knows_train, config::Diagnostics& diagnostics);

/// Throws ConfigError (exit 11) with the mistakes that check_ranks finds in a good recipe, one line
/// each, for a world that is known only now.
void check_topology(const LoadedRecipe& loaded, const std::vector<MoeStageInfo>& stages,
                    int64_t world);

/// True if some stage exchanges rows between nodes before it exchanges them inside each.
bool has_hierarchical_exchange(const std::vector<MoeStageInfo>& stages);

/// The ranks of a node for make_rank_grid: 0 if no stage has a hierarchical exchange, else
/// parallel.ranks_per_node, by default the ranks of a machine. Collective. Throws ConfigError (exit
/// 11) if machines have different numbers of ranks or neighbouring ranks are on different machines.
int64_t ranks_per_node(const ParallelOptions& parallel, const std::vector<MoeStageInfo>& stages,
                       Communicator& world);

}  // namespace shoal
