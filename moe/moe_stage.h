#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "moe/moe_stats.h"
#include "runtime/module/after_step.h"
#include "runtime/module/module.h"

// B samples on this rank  R rows per sample  D width
namespace shoal {

/// Properties of a stage that are checked against the rank grid and shown to users.
struct MoeStageInfo {
  std::string name;  ///< `blocks.2.moe_s`
  int64_t num_units = 0;
  int64_t units_per_token = 0;   ///< routed units whose parameters one token activates
  std::string note = {};         ///< Router::note()
  std::string unbalanced = {};   ///< the router's name, if no loss evens out its loads
  int64_t num_chunks = 1;        ///< parts of the rows in its exchange
  bool is_hierarchical = false;  ///< true if its exchange has two levels
  int64_t num_memory_units = 0;  ///< the last ones of the units; the others are experts
};

/// The output of a MoE stage for the samples of this rank.
struct MoeOutput {
  torch::Tensor y_BRD;
  /// This rank's share of the step's weighted balance losses: the shares of all ranks and
  /// micro-steps add up to the step's. Undefined in evaluation and without losses.
  torch::Tensor auxiliary_loss;
  MoeStats stats;
};

/// A layer whose units are spread over the expert ranks: a MoeLayer or a NexusLayer; not a pipeline
/// stage. Backbones register them as modules anywhere in their tree.
class MoeStage : public ModuleBase, public AfterStep {
 public:
  /// `path` is the module's path in the model, `blocks.2.moe_s`; it keys the stage's noise.
  explicit MoeStage(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  virtual MoeStageInfo info() const = 0;
  void after_step() override {}

 private:
  std::string path_;
};

}  // namespace shoal
