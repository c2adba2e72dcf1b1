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
  torch::Tensor image_bCHW;  ///< in the dtype to compute in
  torch::Tensor token_bS;    ///< int64
  torch::Tensor length_b;    ///< int64, on the host: tokens of each sample, the rest of its S is
                             ///< padding; undefined: all have S
  torch::Tensor value_bN;    ///< in the dtype to compute in
};

/// A batch as one view sees it.
ModelInput input_of(const Batch& batch, int64_t view = 0);
/// The batch's step with the view, which keys noise, for the pass over that view.
StepContext context_of(const Batch& batch, int64_t view);

/// Which features a task wants of its backbone.
enum class Features {
  kPooled,  ///< one vector a sample
  kTokens,  ///< one vector a token
  kLast,    ///< that of each sample's last token
};

struct ModelOutput {
  /// Features::kPooled and kLast: float32, float64 of a float64 model; the head computes in it.
  torch::Tensor pooled_bD = {};
  torch::Tensor token_bSD = {};  ///< Features::kTokens: normed, in the model's dtype
  /// Sum of the MoE layers' weighted balance losses, as this rank's share of the step:
  /// ready to be added to the task's loss. Undefined without balance losses.
  torch::Tensor auxiliary_loss = {};
  std::vector<MoeStats> moe = {};  ///< one entry a MoE layer, in forward order
  /// In evaluation, one entry a token gate: bool [b, S], whether a token attends.
  std::vector<torch::Tensor> is_open_bS = {};

  /// Adds a block's losses and statistics; returns its activations.
  torch::Tensor take(BlockOutput block);
  /// Keeps the normed tokens, their mean over each sample's length, or the last of them. length_b
  /// as in ModelInput, each at least 1.
  void set_tokens(const torch::Tensor& x_bSD, Features features,
                  const torch::Tensor& length_b = {});
};

/// Turns samples into features; the task puts a head on top. Registered under `model.backbone`.
///
/// A model computes in the dtype of its images, one that reads tokens in build.compute_dtype:
/// layers cast their parameters, which stay float32 where images are bfloat16, to that of their
/// input. The residual stream, and the rows that travel between ranks, are then bfloat16; norms,
/// softmaxes, routers, and sums over tokens are computed in float32 and rounded at the edge.
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
  /// With Features::kTokens: side of the patch that each token stands for, row by row; 0 where
  /// tokens are no patches.
  virtual int64_t patch() const { return 0; }
  /// What `sparsity` makes sparse unless told otherwise, as entries of sparsity.layers.
  virtual std::vector<std::string> sparse_layers() const { return {"mlp", "experts"}; }
  /// What its layers log beside what every step has; none by default.
  virtual LayerLogs layer_logs() const { return {}; }
  /// What of its loss depends on train.accumulate: sentences that begin with a key.
  virtual std::vector<std::string> notes_on_accumulation() const { return {}; }
};

/// Makes the recipe's backbone for a task, which registers it under `name`. Paths of layers, which
/// key noise, metrics and loads, begin with `name.`, except for the backbone named `backbone`,
/// whose paths have no prefix: no two backbones of a task share a path. All of them place their
/// units alike.
using BackboneFactory =
    std::function<std::shared_ptr<Backbone>(const std::string& name, Features features)>;
BackboneFactory backbone_factory(const Choice<Backbone>& choice, const ModelContext& build,
                                 const DataShape& data);

/// The images' shape. Throws ConfigError at `key`, saying what data.source gives instead.
ImageShape require_images(const DataShape& data, const std::string& key, std::string_view who);
/// The same of tokens.
void require_tokens(const DataShape& data, const std::string& key, std::string_view who);

/// The MoE stages anywhere in a tree of modules, in the order they were registered.
std::vector<std::shared_ptr<MoeStage>> moe_stages_of(const torch::nn::Module& root);

/// The mean over these dimensions, at least in float32.
torch::Tensor mean_over(const torch::Tensor& x, at::IntArrayRef dims);

}  // namespace shoal
