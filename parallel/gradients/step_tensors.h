#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/gradients/gradient_sync.h"
#include "parallel/gradients/optimizer_shards.h"
#include "runtime/optim/optimizer.h"

namespace shoal {

/// The tensors of one optimizer step that a StepRule (code that runs beside the optimizer) reads
/// and changes: weights, gradients and optimizer state by parameter name. Works alike with sharded
/// optimizer state (ZeRO-1). Of an expert stack a rank sees its own experts. Methods with a `name`
/// throw TORCH_CHECK if no such parameter is trained.
class StepTensors {
 public:
  /// All arguments outlive this object. `shards`: null without sharded optimizer state.
  StepTensors(const GradientSync& sync, const OptimizerShards* shards, const Optimizer& optimizer)
      : sync_(sync), shards_(shards), optimizer_(optimizer) {}

  /// Weights may be changed in place after the update, alike on all ranks with a copy.
  const Parameter& parameter(const std::string& name) const { return *find(name).second; }

  /// Returns the range of the summed gradient that this rank holds, 1-D; all of it without
  /// sharding. May be changed in place before the norm is taken.
  OptimizerShards::Range gradient(const std::string& name) const;
  /// Gathers gradients for whole_gradient. Collective over the ranks with copies.
  void gather_gradients(const std::vector<std::string>& names);
  /// Returns a copy of the summed gradient, made by gather_gradients: neither masked nor clipped,
  /// in the parameter's shape. Throws TORCH_CHECK if it was not gathered.
  const torch::Tensor& whole_gradient(const std::string& name) const;

  /// Returns the communicator of the ranks that hold copies of the parameter.
  Communicator& replicas(const std::string& name) const { return *find(name).first->replicas; }

  /// Returns the names of the kinds of optimizer state, such as "m" and "v" for AdamW.
  std::vector<std::string> state_kinds() const { return optimizer_.state_kinds(); }
  /// Returns a copy of one kind of a parameter's state, in its shape. Collective over its ranks.
  torch::Tensor read_state(const std::string& kind, const std::string& name) const;
  /// Overwrites one kind of state, without communication; `whole` is equal on all its ranks.
  void write_state(const std::string& kind, const std::string& name, const torch::Tensor& whole);

 private:
  std::pair<const ParameterGroup*, const Parameter*> find(const std::string& name) const;

  const GradientSync& sync_;
  const OptimizerShards* shards_;
  const Optimizer& optimizer_;
  std::map<std::string, torch::Tensor> whole_gradients_;
};

/// Throws CommError with `message` unless the tensor's bytes are equal on all ranks. Collective.
void require_equal_replicas(const torch::Tensor& tensor, Communicator& replicas,
                            const std::string& message);

}  // namespace shoal
