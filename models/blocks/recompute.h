#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>

#include "models/blocks/block_output.h"

namespace shoal {

using BlockFunction = std::function<BlockOutput(const torch::Tensor& x)>;

/// Runs `block` by calling run(x), its forward pass. If `recomputes` (activation checkpointing),
/// autograd keeps x only and the backward pass runs the block again; objects that `run` refers to
/// must live until then. Values and gradients do not change, bit for bit on the CPU, since random
/// draws are keyed by sample and step. Only the second run counts chosen experts and open gates for
/// balancing. Both runs make the block's collectives, in the same order on all ranks.
///
/// If a step runs a block several times, each parameter gets the summed gradient of all runs in one
/// addition, as without recomputation. Throws: TORCH_CHECK in the backward pass if `run` trains a
/// parameter outside `block`. Source: Chen et al. 2016.
BlockOutput run_block(bool recomputes, const torch::nn::Module& block, const torch::Tensor& x,
                      const BlockFunction& run);

}  // namespace shoal
