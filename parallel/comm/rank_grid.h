#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace shoal {

/// The world as expert × replica. Rank r has index r % expert_ranks on the expert axis and
/// r / expert_ranks on the replica axis: units are sharded over `expert`, whose ranks are
/// neighbours; the ranks of `replica` hold copies of one shard.
///
/// Neighbouring ranks of the world share a node. An expert group that spans nodes is split into
/// intra_node × inter_node: `intra_node` holds its ranks on this rank's node; `inter_node` holds
/// the ranks with this rank's index on each of its nodes, in the nodes' order.
struct RankGrid {
  c10::Device device = c10::Device(c10::DeviceType::CPU);  ///< this rank's, for the model
  std::unique_ptr<Communicator> world;  ///< for control, and for tensors on the CPU
  /// The world for tensors on GPUs; null where `world` moves them itself or there are none.
  std::unique_ptr<Communicator> gpu_world;
  // Moves tensors on the model's device.
  std::unique_ptr<Communicator> expert;
  std::unique_ptr<Communicator> replica;
  std::unique_ptr<Communicator> intra_node;
  std::unique_ptr<Communicator> inter_node;

  /// All ranks, for tensors on the model's device.
  Communicator& tensor_world() const { return gpu_world ? *gpu_world : *world; }
  /// Number of nodes that an expert group spans.
  int64_t num_nodes() const { return inter_node->size(); }
  /// Throws CommError if one of the communicators has failed.
  void throw_if_failed() const;
};

/// A reason why a world cannot be divided into a grid.
struct TopologyProblem {
  std::string key;   ///< of the recipe, below `parallel`: "expert_ranks" or "ranks_per_node"
  std::string what;  ///< message with the arithmetic
};

/// Text of a division, "5 / 2 = 2.5".
std::string quotient(int64_t a, int64_t b);

/// Checks the one rule of topology: expert_ranks and ranks_per_node divide the world, and one of
/// the two divides the other. Returns no problems if it holds. `world`: nothing if not known yet.
/// `ranks_per_node`: 0 for all ranks on one node.
std::vector<TopologyProblem> topology_problems(std::optional<int64_t> world, int64_t expert_ranks,
                                               int64_t ranks_per_node = 0);

/// Collective. Throws ConfigError (exit 11) with a line for each of topology_problems. `gpu_world`:
/// the same ranks in the same order.
RankGrid make_rank_grid(std::unique_ptr<Communicator> world, int64_t expert_ranks,
                        int64_t ranks_per_node = 0,
                        std::unique_ptr<Communicator> gpu_world = nullptr);

}  // namespace shoal
