#include "launch/weights/upcycle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <set>
#include <utility>

#include "launch/data/recipe_source.h"
#include "launch/model/model_weights.h"
#include "launch/recipe/recipe.h"
#include "launch/weights/load_weights.h"
#include "models/blocks/mlp.h"
#include "moe/experts/unit_bank.h"
#include "moe/moe_layer.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "runtime/base/error.h"
#include "runtime/options/config.h"
#include "runtime/options/config_keys.h"

// D width  H hidden width
namespace shoal {
namespace {

const std::string kMoe = ".moe";
const std::string kMlp = ".mlp";
constexpr const char* kKeysThatMayDiffer =
    "of the keys of model that change what an evaluation computes only moe and sparse_blocks may "
    "differ from the checkpoint's";

/// A MoE layer and the names of its module and of the dense MLP whose place it takes.
struct Stage {
  std::string name, dense;
  std::shared_ptr<MoeLayer> layer;
};

/// What keeps a layer whose experts are all alike from computing what one of them does.
std::vector<std::string> objections(const MoeLayer& layer) {
  const MoeOptions& options = layer.options();
  std::vector<std::string> lines;
  if (!layer.router().weights_sum_to_one()) {
    lines.emplace_back(
        "model.moe.router: with model.upcycle the weights of a token's experts must sum to 1, so "
        "that experts that are all alike compute what the dense MLP does; use a router whose "
        "tokens choose and that drops none, with weights: {normalise: topk_softmax} "
        "or {normalise: sum}, k of 2 or more and scale 1");
  }
  if (options.capacity.mode != CapacityMode::kDropless) {
    lines.emplace_back(
        "model.moe.capacity.mode: with model.upcycle no token may be dropped; use dropless");
  }
  if (options.shared.count > 0) {
    lines.emplace_back(
        "model.moe.shared.count: with model.upcycle there is no MLP that shared experts could "
        "start from; use 0");
  }
  const std::optional<MlpForm> form = layer.units().mlp_form();
  if (!form || form->has_gate) {
    lines.emplace_back(
        "model.moe.experts.kind: with model.upcycle experts are what the dense MLP "
        "is; use plain");
  } else if (!form->has_bias) {
    lines.emplace_back(
        "model.moe.experts.bias: the dense MLP that model.upcycle copies has biases; use true");
  }
  return lines;
}

/// Throws as check_upcycling.
std::vector<Stage> stages_of(const Task& task) {
  std::vector<Stage> stages;
  for (const auto& item : task.named_modules("", /*include_self=*/false)) {
    if (!std::dynamic_pointer_cast<MoeStage>(item.value())) continue;
    const auto layer = std::dynamic_pointer_cast<MoeLayer>(item.value());
    if (!layer || !item.key().ends_with(kMoe)) {
      throw ConfigError(fmt::format(
          "model.upcycle: {} takes no dense MLP's place, from which its units could start; "
          "upcycling is for the experts of model.moe",
          item.key()));
    }
    stages.push_back(
        {item.key(), item.key().substr(0, item.key().size() - kMoe.size()) + kMlp, layer});
  }
  if (stages.empty()) {
    throw ConfigError(
        "model.upcycle: the model has no experts that could start from dense MLPs; set model.moe, "
        "or leave upcycle out");
  }
  // All stages come from one section of the recipe.
  const std::vector<std::string> lines = objections(*stages.front().layer);
  if (!lines.empty()) throw ConfigError(lines);
  return stages;
}

/// Experts of the model, and the dense MLP's tensor that they copy, by the checkpoint's name.
struct Copied {
  Parameter experts, dense;
};

/// What the model takes from the checkpoint: all but routers.
struct Taken {
  ModelWeights weights;  ///< by the checkpoint's names, the dense tensors of `copied` included
  std::vector<Copied> copied;
};

/// The tensor of a dense MLP that an expert's one is a copy of: a Linear keeps [out, in].
torch::Tensor dense_like(const torch::Tensor& stacked) {
  const at::IntArrayRef expert = stacked.sizes().slice(1);
  const std::vector<int64_t> turned(expert.rbegin(), expert.rend());
  return torch::empty(turned, stacked.options().requires_grad(false));
}

Taken taken_by(const BuiltModel& model, const std::vector<Stage>& stages) {
  Taken taken;
  for (const Parameter& weight : weights_of(model).list) {
    const Stage* owner = nullptr;
    for (const Stage& stage : stages) {
      if (weight.name.starts_with(stage.name + ".")) owner = &stage;
    }
    if (owner == nullptr) {
      taken.weights.list.push_back(weight);
    } else if (weight.is_stacked()) {
      const std::string end = weight.name.substr(weight.name.find(".*.") + 2);
      taken.copied.push_back({weight, {owner->dense + end, dense_like(weight.tensor), 0, {}, {}}});
      taken.weights.list.push_back(taken.copied.back().dense);
    }
  }
  return taken;
}

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ExitCode::kMismatch, "model.upcycle: " + what, hint);
}

/// What lets the experts have the hidden widths of the dense MLPs: one for all, or `auto`.
std::string hidden_hint(const std::vector<Copied>& copied, const Manifest& manifest) {
  std::map<int64_t, std::string> name_of_hidden;
  bool is_auto = true;
  for (const Copied& copy : copied) {
    const std::string& name = copy.dense.name;
    const ManifestTensor* dense =
        name.ends_with("fc1.weight") ? manifest.find_tensor(name) : nullptr;
    if (dense == nullptr || dense->shape.size() != 2) continue;
    const int64_t hidden = dense->shape[0], width = dense->shape[1];
    name_of_hidden.emplace(hidden, name);
    is_auto = is_auto && hidden == 4 * width;
  }
  const std::string key = "set model.moe.experts.hidden=";
  if (name_of_hidden.size() == 1) return key + std::to_string(name_of_hidden.begin()->first);
  if (is_auto) return key + "auto, which is 4 times the width of each stage";
  std::vector<std::string> widths;
  for (const auto& [hidden, name] : name_of_hidden) {
    widths.push_back(fmt::format("{} of '{}'", hidden, name));
  }
  return fmt::format(
      "model.moe.experts.hidden is one number, or auto, and these hidden widths differ: {}; let "
      "model.sparse_blocks leave out all but one of them",
      fmt::join(widths, ", "));
}

void check_shapes(const std::vector<Copied>& copied, const std::string& checkpoint,
                  const Manifest& manifest) {
  for (const Copied& copy : copied) {
    const std::string& name = copy.dense.name;
    const std::vector<int64_t> expert = copy.experts.tensor.sizes().slice(1).vec();
    const std::string wanted =
        fmt::format("the experts '{}' are [{}] each", copy.experts.name, fmt::join(expert, ", "));
    const ManifestTensor* dense = manifest.find_tensor(name);
    if (dense == nullptr) {
      refuse(fmt::format("{}, but checkpoint '{}' has no dense '{}' to copy", wanted, checkpoint,
                         name),
             "init_from must be a dense model of the same backbone, depth and width");
    }
    if (at::IntArrayRef(dense->shape).equals(copy.dense.tensor.sizes())) continue;
    const std::vector<int64_t> turned(dense->shape.rbegin(), dense->shape.rend());
    const bool is_hidden = name.ends_with("fc1.bias") ||
                           (turned.size() == 2 && expert.size() == 2 && turned[0] == expert[0]);
    refuse(fmt::format("{}, '{}' of checkpoint '{}' is [{}]{}", wanted, name, checkpoint,
                       fmt::join(dense->shape, ", "),
                       turned.size() == 2
                           ? fmt::format(", or [{}] as experts keep it", fmt::join(turned, ", "))
                           : ""),
           is_hidden ? hidden_hint(copied, manifest)
                     : "use the width that the checkpoint was trained with");
  }
}

/// The checkpoint's own model, without memory for it.
BuiltModel dense_twin(const Manifest& manifest) {
  const Recipe recipe = stored_recipe(manifest);
  return build_model(recipe, make_source(recipe)->shape());
}

void check_activations(const std::vector<Stage>& stages, const Task& twin) {
  const auto modules = twin.named_modules();
  for (const Stage& stage : stages) {
    const auto* module = modules.find(stage.dense);
    const auto* mlp = module == nullptr ? nullptr : (*module)->as<MlpImpl>();
    if (mlp == nullptr) refuse("the checkpoint's " + stage.dense + " is not a dense MLP", "");
    const Activation dense = activation_of(mlp->gelu());
    const Activation expert = stage.layer->units().mlp_form().value().activation;
    if (dense == expert) continue;
    refuse(fmt::format("the experts of {} have the activation {}, the checkpoint's {} has {}",
                       stage.name, enum_name(expert), stage.dense, enum_name(dense)),
           fmt::format("set model.moe.experts.activation={}", enum_name(dense)));
  }
}

void check_all_used(const ModelWeights& taken, const BuiltModel& twin,
                    const std::string& checkpoint) {
  std::set<std::string> used;
  for (const Parameter& weight : taken.list) used.insert(weight.name);
  for (const Parameter& weight : weights_of(twin).list) {
    if (used.contains(weight.name)) continue;
    refuse(
        fmt::format("'{}' of checkpoint '{}' has no place in this model", weight.name, checkpoint),
        kKeysThatMayDiffer);
  }
}

}  // namespace

void check_upcycling(const BuiltModel& model) { stages_of(*model.task); }

void load_upcycled(const std::string& checkpoint, const BuiltModel& model, Communicator& world,
                   bool raw_weights) {
  const std::vector<Stage> stages = stages_of(*model.task);
  Taken taken = taken_by(model, stages);
  const Manifest manifest = read_manifest(checkpoint, world);
  check_shapes(taken.copied, checkpoint, manifest);
  const BuiltModel twin = dense_twin(manifest);
  check_activations(stages, *twin.task);
  check_all_used(taken.weights, twin, checkpoint);
  load_weights(checkpoint, std::move(taken.weights), world, raw_weights);
  const torch::NoGradGuard no_grad;
  for (const Copied& copy : taken.copied) {
    const torch::Tensor &experts = copy.experts.tensor, &dense = copy.dense.tensor;
    experts.copy_((dense.dim() == 2 ? dense.t() : dense).unsqueeze(0).expand_as(experts));
  }
}

void require_same_model(std::vector<ChangedKey> differences) {
  std::erase_if(differences, [](const ChangedKey& difference) {
    return config::is_at_or_below(difference.path, "model.moe") ||
           config::is_at_or_below(difference.path, "model.sparse_blocks");
  });
  if (differences.empty()) return;
  refuse("the model would not compute what the dense one does:" + describe(differences),
         kKeysThatMayDiffer);
}

}  // namespace shoal
