#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/blocks/block_output.h"
#include "moe/moe_stage.h"
#include "moe/moe_stats.h"
#include "parallel/comm/build_context.h"
#include "runtime/data/batch.h"
#include "runtime/data/data_shape.h"
#include "runtime/module/module.h"
#include "runtime/options/registry.h"
#include "runtime/random/step_context.h"

// b samples on this rank  C channels  H height  W width  S tokens  N numbers  D features
namespace shoal {

/// Inputs of a model: images, tokens or numbers. Its constructor checks that the data has them.
struct ModelInput {
  torch::Tensor image_bCHW;  ///< in the compute dtype
  torch::Tensor token_bS;    ///< int64
  torch::Tensor length_b;  ///< int64, on the host: tokens of each sample, followed by padding up to
                           ///< S; undefined: S for all
  torch::Tensor value_bN;  ///< in the compute dtype
};

/// The model's input for one view of a batch.
ModelInput input_of(const Batch& batch, int64_t view = 0);
/// The batch's context for one view, whose number keys noise.
StepContext context_of(const Batch& batch, int64_t view);

/// The features that a task needs from its backbone.
enum class Features {
  kPooled,  ///< one vector a sample
  kTokens,  ///< one vector a token
  kLast,    ///< the vector of each sample's last token
};

/// Output of a backbone: features in the requested form, aux loss and MoE statistics.
struct ModelOutput {
  /// Features::kPooled and kLast: float32, or float64 in a float64 model; the dtype of the head.
  torch::Tensor pooled_bD = {};
  torch::Tensor token_bSD = {};  ///< Features::kTokens: after the norm, in the model's dtype
  /// This rank's share of the step's weighted balance losses, summed over MoE layers, to be added
  /// to the task's loss. Undefined without balance losses.
  torch::Tensor auxiliary_loss = {};
  std::vector<MoeStats> moe = {};  ///< one entry a MoE layer, in forward order
  /// In evaluation, for each token gate: bool [b, S], true for tokens that attend.
  std::vector<torch::Tensor> is_open_bS = {};

  /// Adds a block's losses and statistics; returns its activations.
  torch::Tensor take(BlockOutput block);
  /// Sets the normed tokens, their mean over each sample's length, or the last one. length_b as in
  /// ModelInput, each at least 1.
  void set_tokens(const torch::Tensor& x_bSD, Features features,
                  const torch::Tensor& length_b = {});
};

/// Computes features of samples; the task adds a head. Registered under `model.backbone`.
///
/// A model computes in the dtype of its images or, if it reads tokens, in build.compute_dtype:
/// layers cast their parameters, which stay float32 with bfloat16 images, to the dtype of their
/// input. The residual stream and exchanged rows are then bfloat16; norms, softmaxes, routers, and
/// sums over tokens are computed in float32 and rounded at the edge.
class Backbone : public ModuleBase {
 public:
  struct Context {
    BuildContext build;
    DataShape data;
    Features features = Features::kPooled;
  };
  static constexpr std::string_view kNameKey = "backbone";
  static constexpr std::string_view kNoun = "backbone";

  /// b may be 0. Collective over context.build.grid.
  virtual ModelOutput forward(const ModelInput& input, const StepContext& step) = 0;
  virtual int64_t feature_width() const = 0;
  /// With Features::kTokens, side in pixels of each token's patch, row by row; 0 without patches.
  virtual int64_t patch() const { return 0; }
  /// Default of sparsity.layers.
  virtual std::vector<std::string> sparse_layers() const { return {"mlp", "experts"}; }
};

/// Makes the recipe's backbone for a task, which registers it under `name`. Paths of layers, which
/// key noise, metrics and loads, begin with `name.`, but have no prefix for the backbone named
/// `backbone`, so that no two backbones of a task share a path. All of them have the same placement
/// of units.
using BackboneFactory =
    std::function<std::shared_ptr<Backbone>(const std::string& name, Features features)>;
BackboneFactory backbone_factory(const Choice<Backbone>& choice, const BuildContext& build,
                                 const DataShape& data);

/// The images' shape. Without images throws ConfigError at `key`, naming what data.source gives.
ImageShape require_images(const DataShape& data, const std::string& key, std::string_view who);
/// Without tokens throws ConfigError at `key`, which says what data.source gives.
void require_tokens(const DataShape& data, const std::string& key, std::string_view who);

/// All MoE stages in a tree of modules, in the order of registration.
std::vector<std::shared_ptr<MoeStage>> moe_stages_of(const torch::nn::Module& root);

/// The mean over these dimensions, in float32 or wider.
torch::Tensor mean_over(const torch::Tensor& x, at::IntArrayRef dims);

}  // namespace shoal
