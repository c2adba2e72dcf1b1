#pragma once

#include <torch/types.h>

#include <functional>

#include "models/blocks/block_output.h"

namespace shoal {

using BlockFunction = std::function<BlockOutput(const torch::Tensor& x)>;

/// block(x). If it `recomputes`, the graph keeps x alone, and the backward pass runs the block once
/// more; whatever the block refers to must live until then. Same values and gradients, bit for bit,
/// as draws are keyed by what they are for and a router's counts are taken in the second run only.
/// Collectives are made in both runs, in one order on all ranks.
/// Source: Chen et al. 2016.
BlockOutput run_block(bool recomputes, const torch::Tensor& x, const BlockFunction& block);

}  // namespace shoal
