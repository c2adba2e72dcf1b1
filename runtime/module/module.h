#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/module/parameter.h"

namespace shoal {

/// Base of all layers: registers parameters together with the values they start from, and knows
/// which ones stack experts, or other units that a router chooses from.
///
/// Tensors are allocated uninitialised with the given options; on the `meta` device nothing is
/// allocated, which is how parameters are counted. `initialise` or a checkpoint fills them.
class ModuleBase : public torch::nn::Module {
 public:
  struct Spec {
    std::string name;  ///< name as passed to add_…
    Init init;
    std::vector<int64_t> unit_ids;  ///< global ids of the units that dimension 0 stacks
    bool is_stacked = false;        ///< true also for a stack of no units
  };
  /// Spec of a parameter or buffer. `key`: its name with `/` for each dot, which torch refuses.
  const Spec& spec(const std::string& key) const;

 protected:
  /// Adds a parameter that every rank holds whole.
  torch::Tensor add_parameter(const std::string& name, at::IntArrayRef sizes,
                              const torch::TensorOptions& options, const Init& init);
  /// Adds a parameter [u, sizes...] that stacks this rank's units, whose global ids are `unit_ids`;
  /// u = unit_ids.size() may be 0. Names, here as above, may have dots: `fc1.weight`.
  torch::Tensor add_stacked_parameter(const std::string& name, at::IntArrayRef sizes,
                                      const torch::TensorOptions& options, const Init& init,
                                      const std::vector<int64_t>& unit_ids);
  /// Adds a tensor that is whole and equal on every rank, saved in checkpoints, without gradient.
  torch::Tensor add_buffer(const std::string& name, at::IntArrayRef sizes,
                           const torch::TensorOptions& options, const Init& init);

 private:
  torch::Tensor add(Spec spec, at::IntArrayRef sizes, const torch::TensorOptions& options);

  std::vector<std::pair<std::string, Spec>> specs_;  // by torch's key
};

/// A module with state that it updates itself after each optimizer step, without gradients, such
/// as the bias with which a router balances the loads of its experts.
class AfterStep {
 public:
  virtual ~AfterStep() = default;
  /// Called after each step, unless it was skipped because a gradient was not finite. Collective.
  virtual void after_step() = 0;
};

/// All parameters of a module tree in registration order, with logical names. A stacked parameter
/// added as `fc1.weight` in a module with path `blocks.2.moe_s.experts` is named
/// `blocks.2.moe_s.experts.*.fc1.weight`: the `*` follows the path of the module that added it.
/// Throws TORCH_CHECK if a module that is not a ModuleBase owns parameters.
std::vector<Parameter> parameters_of(const torch::nn::Module& root, const std::string& prefix = "");

/// All buffers of a module tree, named like parameters.
std::vector<Parameter> buffers_of(const torch::nn::Module& root, const std::string& prefix = "");

}  // namespace shoal
