#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace shoal {

/// The process groups of a training: the world as a grid, expert × data parallelism.
///
/// Rank r has index r % expert_ranks on the expert axis and r / expert_ranks on the replica axis.
/// The units of MoE layers (experts, and memory units: tables of keys and values) are sharded over
/// `expert`, whose ranks are neighbours in the world. The ranks of `replica` hold equal shards.
///
/// Neighbouring ranks of the world share a node (a machine). An expert group that spans several
/// nodes is itself a grid, intra_node × inter_node, if make_rank_grid is told of nodes:
/// `intra_node` holds its ranks on this rank's node; `inter_node` holds, in node order, the ranks
/// with this rank's index on their node.
struct RankGrid {
  c10::Device device = c10::Device(c10::DeviceType::CPU);  ///< device of this rank's model
  std::unique_ptr<Communicator> world;  ///< all ranks: control data and tensors on the CPU
  /// All ranks, for tensors on GPUs; null without GPUs, or if `world` moves GPU tensors itself.
  std::unique_ptr<Communicator> gpu_world;
  // The following four move tensors on the model's device.
  std::unique_ptr<Communicator> expert;
  std::unique_ptr<Communicator> replica;
  std::unique_ptr<Communicator> intra_node;  ///< null unless the expert group spans several nodes
  std::unique_ptr<Communicator> inter_node;  ///< null where intra_node is

  /// Returns the communicator of all ranks for tensors on the model's device.
  Communicator& tensor_world() const { return gpu_world ? *gpu_world : *world; }
  /// Returns the number of nodes that an expert group spans.
  int64_t num_nodes() const { return inter_node ? inter_node->size() : 1; }
  /// Throws CommError if one of the communicators has failed.
  void throw_if_failed() const;
};

/// A reason why a world cannot be divided into a grid.
struct TopologyProblem {
  std::string key;   ///< recipe key at fault, below `parallel`: "expert_ranks" or "ranks_per_node"
  std::string what;  ///< message with the arithmetic
};

/// Returns the text of a division, "5 / 2 = 2.5".
std::string quotient(int64_t a, int64_t b);

/// Checks that expert_ranks and ranks_per_node divide the number of ranks, and that one of the two
/// divides the other. Returns what is wrong, empty if all is well. `world`: number of ranks, unset
/// if unknown. `ranks_per_node`: 0 means that all ranks are on one node.
std::vector<TopologyProblem> topology_problems(std::optional<int64_t> world, int64_t expert_ranks,
                                               int64_t ranks_per_node = 0);

/// Collective. Divides `world` into a grid. `ranks_per_node`: needed for a hierarchical exchange
/// only; 0 means that all ranks are on one node. `gpu_world`: the same ranks in the same order, for
/// GPU tensors; may be null. Throws ConfigError (exit 11) with a line for each of
/// topology_problems.
RankGrid make_rank_grid(std::unique_ptr<Communicator> world, int64_t expert_ranks,
                        int64_t ranks_per_node = 0,
                        std::unique_ptr<Communicator> gpu_world = nullptr);

}  // namespace shoal
