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

/// What a model needs beside its options; its layers get the BuildContext.
struct ModelContext : BuildContext {
  /// Dtype of the activations of a model that reads tokens; in other models the input's.
  torch::Dtype compute_dtype = torch::kFloat32;
  bool recomputes = false;  ///< whether the backward pass runs blocks again, to save memory
  std::string prefix = {};  ///< before the path of each layer; a task's second model has its own
};

/// What a model reads: images, tokens or numbers, of which its constructor requires what it uses.
struct ModelInput {
  torch::Tensor image_bCHW;  ///< in the compute dtype
  torch::Tensor token_bS;    ///< int64
  torch::Tensor length_b;    ///< int64, on the host: tokens of each sample, the rest of its S is
                             ///< padding; undefined: no padding
  torch::Tensor value_bN;    ///< in the compute dtype
};

/// The model input of one view (augmented copy) of a batch; views are numbered from 0.
ModelInput input_of(const Batch& batch, int64_t view = 0);
/// The batch's step context for the pass over one view; the view keys the noise.
StepContext context_of(const Batch& batch, int64_t view);

/// The form in which a task needs the backbone's features.
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
  /// In evaluation, one entry per token gate: bool [b, S], True where a token attends.
  std::vector<torch::Tensor> is_open_bS = {};

  /// Adds a block's losses and statistics; returns its activations.
  torch::Tensor take(BlockOutput block);
  /// Stores the features of the normed tokens x: all tokens, their mean over each sample's length,
  /// or the last one. length_b as in ModelInput, each at least 1.
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
  /// A backbone in a first recipe, with values for a first training.
  struct Sketch {
    /// Experts that it may have stand in `moe`; those that it must have, in its `lines`.
    enum class Experts { kNone, kMay, kMust };
    Experts experts = Experts::kMay;
    std::string_view why = "";   ///< with kNone and kMust: what to take instead
    std::string_view task = "";  ///< the usual one for images; "": reads tokens
    /// Keys of `model`. {patch}: 4, for large images 16; {stage}: keys of a MoE stage; {top_k}:
    /// `{k: 8}` for each expert.
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
  /// What its layers log beside what every step has; none by default.
  virtual LayerLogs layer_logs() const { return {}; }
  /// What of its loss depends on train.accumulate: sentences that begin with a key.
  virtual std::vector<std::string> notes_on_accumulation() const { return {}; }
};

/// Makes the recipe's backbone; a task registers the result under `name`. Paths of layers, which
/// key noise, metrics and expert loads, begin with `name.`, except in a backbone named `backbone`,
/// so that paths are unique within a task. All backbones of a task place their units on the same
/// ranks.
using BackboneFactory =
    std::function<std::shared_ptr<Backbone>(const std::string& name, Features features)>;
BackboneFactory backbone_factory(const Choice<Backbone>& choice, const ModelContext& build,
                                 const DataShape& data);

/// Returns the images' shape. Throws ConfigError at `key` if data.source does not give images.
ImageShape require_images(const DataShape& data, const std::string& key, std::string_view who);
/// Without tokens throws ConfigError at `key`, which says what data.source gives.
void require_tokens(const DataShape& data, const std::string& key, std::string_view who);

/// All MoE stages below a module, in order of registration.
std::vector<std::shared_ptr<MoeStage>> moe_stages_of(const torch::nn::Module& root);

/// Mean over the given dimensions, computed in float32 or wider.
torch::Tensor mean_over(const torch::Tensor& x, at::IntArrayRef dims);

}  // namespace shoal
