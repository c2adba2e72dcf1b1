#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launch/step/session.h"
#include "parallel/comm/communicator.h"

namespace shoal::testing {

using NamedTensors = std::map<std::string, torch::Tensor>;

/// What a few training steps leave behind, by logical names with unit ids. Tensors are whole on
/// rank 0; the others have the numbers and the balance losses alone.
struct TrainingTrace {
  std::vector<NamedTensors> gradients;     ///< of each step, summed and clipped
  NamedTensors weights;                    ///< after the last step, buffers included
  NamedTensors balance_losses;             ///< as logged, of each step and layer
  torch::Tensor outputs;                   ///< logits of the validation split, after it
  std::vector<double> losses, grad_norms;  ///< of each step
  double eval_loss = 0.0;
  double dropped = 0.0;              ///< largest share of choices dropped in a step
  int64_t ranks_without_tokens = 0;  ///< in the first step, before any exchange
  int64_t units_without_tokens = 0;  ///< in the first step, over all layers
};

/// Trains `recipe_text` with `overrides` for `steps` optimizer steps over the ranks of `world`,
/// from fill_parameters: behind a head of zeros, with which a recipe starts, the gradients of the
/// first step would be zero, and biases near zero would have no magnitude to compare with.
/// Collective; refuses what differs in a bit between ranks that hold the same. `gpu_world`: as
/// make_rank_grid's.
TrainingTrace train_and_trace(const std::string& recipe_text,
                              const std::vector<std::string>& overrides, int64_t steps,
                              std::unique_ptr<Communicator> world,
                              std::unique_ptr<Communicator> gpu_world = nullptr);

/// Where two traces differ by more than `tolerance`, one line each; empty if nowhere.
/// Gradients: relative to the step's largest gradient of the model. Weights and outputs: relative
/// to each tensor's largest magnitude. `skip_weights`: name parts of weights that are not compared,
/// or not with all their rows: `qkv.bias[2/3]` leaves out the second third.
std::vector<std::string> differences(const TrainingTrace& expected, const TrainingTrace& actual,
                                     double tolerance,
                                     const std::vector<std::string>& skip_weights = {});

}  // namespace shoal::testing
