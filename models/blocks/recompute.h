#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>

#include "models/blocks/block_output.h"

namespace shoal {

using BlockFunction = std::function<BlockOutput(const torch::Tensor& x)>;

/// Runs `block` by calling run(x), its forward pass. If `recomputes` (activation checkpointing),
/// autograd keeps x only and the backward pass runs the block again; objects that `run` refers to
/// must live until then. Values and gradients are equal, bit for bit on the CPU: random draws are
/// keyed by sample and step, and routers' counters move in the second run only. Both runs make the
/// block's collectives, in the same order on all ranks.
///
/// If a block runs several times in a step, the backward pass adds the sum of all runs to each
/// parameter's gradient once, at its end, as without recomputation. Throws: TORCH_CHECK in the
/// backward pass if `run` trains a parameter outside `block`. Source: Chen et al. 2016.
BlockOutput run_block(bool recomputes, const torch::nn::Module& block, const torch::Tensor& x,
                      const BlockFunction& run);

}  // namespace shoal
