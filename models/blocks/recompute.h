#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>

#include "models/blocks/block_output.h"

namespace shoal {

using BlockFunction = std::function<BlockOutput(const torch::Tensor& x)>;

/// Returns run(x), the forward pass of `block`. If it `recomputes`, only x is saved, and the
/// backward pass runs the block again; objects that `run` refers to must live until then. Values
/// and gradients are the same, on the CPU bit for bit, because random draws are keyed and a router
/// counts in the second run only. Collectives are made in both runs, in one order on all ranks.
///
/// A block may run several times in one step: the backward pass adds each parameter's gradient
/// once, at its end, as without recomputing. Throws TORCH_CHECK in the backward pass if `run`
/// trains a parameter outside the block. Source: Chen et al. 2016.
BlockOutput run_block(bool recomputes, const torch::nn::Module& block, const torch::Tensor& x,
                      const BlockFunction& run);

}  // namespace shoal
