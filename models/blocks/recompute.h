#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>

#include "models/blocks/block_output.h"

namespace shoal {

using BlockFunction = std::function<BlockOutput(const torch::Tensor& x)>;

/// run(x), the forward pass of `block`. If it `recomputes`, the graph keeps x alone, and the
/// backward pass runs the block once more; whatever `run` refers to must live until then. Same
/// values and gradients, on the CPU bit for bit, as draws are keyed by what they are for and
/// a router's counts are taken in the second run only. Collectives are made in both runs, in one
/// order on all ranks.
///
/// A block may run several times in one step: the backward pass adds to each of its parameters'
/// gradients once, at its end, as it does without recomputing.
/// Throws TORCH_CHECK in the backward pass if `run` trains a parameter that is not the block's.
/// Source: Chen et al. 2016.
BlockOutput run_block(bool recomputes, const torch::nn::Module& block, const torch::Tensor& x,
                      const BlockFunction& run);

}  // namespace shoal
