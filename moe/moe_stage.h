#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "moe/moe_stats.h"
#include "runtime/module/module.h"

// B samples on this rank  R rows per sample  D width
namespace shoal {

/// Properties of a MoE layer that are checked against the numbers of ranks and shown to users.
struct MoeStageInfo {
  std::string name;              ///< module path, such as `blocks.2.moe_s`
  int64_t num_units = 0;         ///< experts and memory units (tables), over all ranks
  int64_t units_per_token = 0;   ///< routed units whose parameters one token activates
  std::string note = {};         ///< a warning of the router to users; may be empty
  std::string unbalanced = {};   ///< the router's name if it needs a balance loss but has none
  int64_t num_chunks = 1;        ///< parts in which rows are exchanged between ranks
  bool is_hierarchical = false;  ///< true if rows go between nodes first, then inside
  int64_t num_memory_units = 0;  ///< the last ones of the units; the others are experts
};

/// The output of a MoE layer for the samples of this rank.
struct MoeOutput {
  torch::Tensor y_BRD;
  /// This rank's share of the step's weighted balance losses: the shares of all ranks and
  /// micro-steps add up to the step's. Undefined in evaluation and without losses.
  torch::Tensor auxiliary_loss;
  MoeStats stats;
};

/// Base of all layers whose units are spread over the expert ranks: MoeLayer, NexusLayer (soft
/// routing of experts and memory units) and AttentionExperts. Backbones register them as modules
/// anywhere in their tree. Not a pipeline stage.
class MoeStage : public ModuleBase, public AfterStep {
 public:
  /// `path`: the module's path, such as `blocks.2.moe_s`; also the key of the layer's noise.
  explicit MoeStage(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  virtual MoeStageInfo info() const = 0;
  void after_step() override {}

 private:
  std::string path_;
};

}  // namespace shoal
