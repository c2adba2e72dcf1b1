#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "models/blocks/block_output.h"
#include "moe/moe_stage.h"
#include "moe/moe_stats.h"
#include "parallel/comm/build_context.h"
#include "runtime/data/image_shape.h"
#include "runtime/module/module.h"
#include "runtime/random/step_context.h"
#include "runtime/recipe/registry.h"

namespace shoal {

/// b images on this rank, D features.
struct ModelOutput {
  torch::Tensor features_bD;  ///< float32, float64 of a float64 model; the head computes in it
  /// Sum of the MoE layers' weighted balance losses, as this rank's share of the step:
  /// ready to be added to the task's loss. Undefined without balance losses.
  torch::Tensor auxiliary_loss;
  std::vector<MoeStats> moe;  ///< one entry a MoE layer, in forward order

  /// Adds a block's losses and statistics; returns its activations.
  torch::Tensor take(BlockOutput block);
};

/// Turns images into features; the task puts a head on top. Registered under `model.backbone`.
///
/// A model computes in the dtype of its images: layers cast their parameters, which stay float32
/// where images are bfloat16, to that of their input. The residual stream, and the rows that travel
/// between ranks, are then bfloat16; norms, softmaxes, routers, and sums over tokens are computed
/// in float32 and rounded at the edge.
class Backbone : public ModuleBase {
 public:
  struct Context {
    BuildContext build;
    ImageShape image;
  };
  static constexpr std::string_view kNameKey = "backbone";
  static constexpr std::string_view kNoun = "backbone";

  /// image_bCHW in the dtype to compute in, b may be 0. Collective over context.build.grid.
  virtual ModelOutput forward(const torch::Tensor& image_bCHW, const StepContext& step) = 0;
  virtual int64_t feature_width() const = 0;
  /// The MoE stages anywhere in the tree of modules, in the order they were registered.
  virtual std::vector<MoeStageInfo> moe_stages() const;
  /// After an optimizer step that was taken. Collective.
  virtual void after_step();
};

/// x, or float32 of what has fewer bits.
torch::Tensor at_least_float32(const torch::Tensor& x);
/// The mean over these dimensions, at least in float32.
torch::Tensor mean_over(const torch::Tensor& x, at::IntArrayRef dims);

}  // namespace shoal
