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

/// The tensors of one step that a StepRule reads and changes, by the logical names of trained
/// parameters, whether gradients and optimizer state are whole or sharded. Of an expert stack a
/// rank sees its own units. Every method throws TORCH_CHECK if no such parameter is trained.
class StepTensors {
 public:
  /// All arguments outlive this object. `shards`: null without sharded optimizer state.
  StepTensors(const GradientSync& sync, const OptimizerShards* shards, const Optimizer& optimizer);

  /// The parameter's weights may be changed in place after the update, alike on all replicas.
  const Parameter& parameter(const std::string& name) const;

  /// The summed gradient that this rank holds, flat, its elements from `begin` on; may be changed
  /// in place before the norm.
  OptimizerShards::Range gradient(const std::string& name) const;
  /// Collective over the replicas of these parameters.
  void gather_gradients(const std::vector<std::string>& names);
  /// A copy of the summed gradient, neither masked nor clipped. TORCH_CHECK unless gathered.
  const torch::Tensor& whole_gradient(const std::string& name) const;

  /// The ranks that hold copies of the parameter.
  Communicator& replicas(const std::string& name) const;

  /// Names of the kinds of optimizer state, such as "m" and "v".
  std::vector<std::string> state_kinds() const { return optimizer_.state_kinds(); }
  /// A copy of one kind of optimizer state ("m", "v"). Collective over the parameter's replicas.
  torch::Tensor read_state(const std::string& kind, const std::string& name) const;
  /// Local; every replica must give the same values.
  void write_state(const std::string& kind, const std::string& name, const torch::Tensor& whole);

 private:
  std::pair<const ParameterGroup*, const Parameter*> find(const std::string& name) const;

  const GradientSync& sync_;
  const OptimizerShards* shards_;
  const Optimizer& optimizer_;
  std::map<std::string, torch::Tensor> whole_gradients_;
};

/// Throws CommError with this message unless the tensor's bytes are equal on all ranks. Collective.
void require_equal_replicas(const torch::Tensor& tensor, Communicator& replicas,
                            const std::string& message);

}  // namespace shoal
