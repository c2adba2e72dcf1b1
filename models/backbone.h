#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/blocks/block_output.h"
#include "moe/build_context.h"
#include "moe/moe_stage.h"
#include "moe/moe_stats.h"
#include "runtime/data/batch.h"
#include "runtime/data/data_shape.h"
#include "runtime/module/module.h"
#include "runtime/options/registry.h"
#include "runtime/random/step_context.h"
#include "runtime/records/layer_log.h"

// b samples on this rank  C channels  H height  W width  S tokens  N numbers  D features
namespace shoal {

/// What a backbone is built from beside its options. The BuildContext, which its layers get too,
/// has the rank grid, device and dtype of parameters, and the placement of experts.
struct ModelContext : BuildContext {
  /// Dtype of the activations of a model that reads tokens; in other models the input's.
  torch::Dtype compute_dtype = torch::kFloat32;
  bool recomputes = false;  ///< true: activation checkpointing, the backward pass runs blocks again
  std::string prefix = {};  ///< before the path of each layer; a task's second backbone has its own
};

/// Input of a backbone: images, tokens or numbers, which its constructor requires of the data.
struct ModelInput {
  torch::Tensor image_bCHW;  ///< in the compute dtype
  torch::Tensor token_bS;    ///< int64
  torch::Tensor length_b;    ///< int64, on the host: tokens of each sample, the rest of its S is
                             ///< padding; undefined: no padding
  torch::Tensor value_bN;    ///< in the compute dtype
};

/// The model input of one view (augmented copy) of a batch; views are numbered from 0.
ModelInput input_of(const Batch& batch, int64_t view = 0);
/// The batch's step context for the pass over one view; each view has random numbers of its own.
StepContext context_of(const Batch& batch, int64_t view);

/// What a task gets from a backbone: one feature vector per sample, or one per token.
enum class Features {
  kPooled,  ///< one vector per sample
  kTokens,  ///< one vector per token
  kLast,    ///< the vector of each sample's last token
};

/// Output of a backbone: features in the requested form, aux loss and MoE statistics.
struct ModelOutput {
  /// Features::kPooled and kLast; float32, or float64 for a float64 model. Input of the head.
  torch::Tensor pooled_bD = {};
  torch::Tensor token_bSD = {};  ///< Features::kTokens: after the norm, in the model's dtype
  /// This rank's share of the step's weighted balance losses (aux losses) over all MoE layers, to
  /// be added to the task's loss. Undefined without balance losses.
  torch::Tensor auxiliary_loss = {};
  std::vector<MoeStats> moe = {};  ///< one entry per MoE layer, in forward order
  /// In evaluation, one entry per token gate, which selects the tokens that attend (HSPMN v2.1):
  /// bool [b, S], true where a token attends.
  std::vector<torch::Tensor> is_open_bS = {};

  /// Adds a block's losses and statistics; returns its activations.
  torch::Tensor take(BlockOutput block);
  /// Stores the features of the normed tokens x: all tokens, their mean over each sample's length,
  /// or the last one. length_b: tokens of each sample, at least 1; undefined: S.
  void set_tokens(const torch::Tensor& x_bSD, Features features,
                  const torch::Tensor& length_b = {});
};

/// Turns samples into features, on which the task puts a head. Registered under `model.backbone`.
///
/// The compute dtype is the images' dtype, or build.compute_dtype for models that read tokens.
/// Parameters stay float32 where it is bfloat16; layers cast them to their input's dtype. The
/// residual stream and the rows exchanged between ranks are then bfloat16. Norms, softmaxes,
/// routers and sums over tokens are computed in float32 and cast at the end.
class Backbone : public ModuleBase {
 public:
  struct Context {
    ModelContext build;
    DataShape data;
    Features features = Features::kPooled;
  };
  /// What `shoal new` writes into a first recipe with this backbone.
  struct Sketch {
    /// kNone: it has no experts; kMay: a section `moe` may add them; kMust: its `lines` have them.
    enum class Experts { kNone, kMay, kMust };
    Experts experts = Experts::kMay;
    /// Error hint when `shoal new` is asked for a kNone backbone with experts or a kMust backbone
    /// without, such as "mixer is the dense model".
    std::string_view why = "";
    std::string_view task = "";  ///< usual task of a backbone for images; "": it reads tokens
    /// YAML of the section `model`, in which {patch} becomes the side of a patch, {stage} the
    /// recipe keys of a MoE layer, and {top_k} an entry such as `{k: 8}` for each expert.
    std::string_view lines = "";
  };
  static constexpr std::string_view kNameKey = "backbone";
  static constexpr std::string_view kNoun = "backbone";

  /// b may be 0. Collective over context.build.grid.
  virtual ModelOutput forward(const ModelInput& input, const StepContext& step) = 0;
  virtual int64_t feature_width() const = 0;
  /// Side of the patch that each token of Features::kTokens stands for, tokens being in row-major
  /// order; 0 if tokens are not patches.
  virtual int64_t patch() const { return 0; }
  /// Layers that `sparsity` makes sparse by default, as entries of sparsity.layers.
  virtual std::vector<std::string> sparse_layers() const { return {"mlp", "experts"}; }
  /// Logs of its layers beside the metrics of every step; default: none.
  virtual LayerLogs layer_logs() const { return {}; }
  /// Notes of `shoal check`, each `key: sentence`, on losses that depend on train.accumulate.
  virtual std::vector<std::string> notes_on_accumulation() const { return {}; }
};

/// Function with which a task makes the recipe's backbone, once or, for a momentum encoder, twice;
/// the task registers the result under `name`. A layer's path identifies its random numbers,
/// metrics and expert loads. To be unique within a task, paths begin with `name.`, except in the
/// backbone named `backbone`. All backbones of a task place their experts on the same ranks.
using BackboneFactory =
    std::function<std::shared_ptr<Backbone>(const std::string& name, Features features)>;
BackboneFactory backbone_factory(const Choice<Backbone>& choice, const ModelContext& build,
                                 const DataShape& data);

/// Returns the images' shape. Throws ConfigError, `key: who needs images`, if data.source has none.
ImageShape require_images(const DataShape& data, const std::string& key, std::string_view who);
/// Throws ConfigError, `key: who needs tokens`, if data.source gives none.
void require_tokens(const DataShape& data, const std::string& key, std::string_view who);

/// All backbones below `root`, in order of registration.
std::vector<std::shared_ptr<Backbone>> backbones_of(const torch::nn::Module& root);
/// All modules below `root` that route tokens to experts or memory units, in order of registration.
std::vector<std::shared_ptr<MoeStage>> moe_stages_of(const torch::nn::Module& root);

/// Mean over the given dimensions, computed in float32 or wider.
torch::Tensor mean_over(const torch::Tensor& x, at::IntArrayRef dims);

}  // namespace shoal
