#include "launch/train/upcycle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "launch/job/recipe.h"
#include "models/blocks/mlp.h"
#include "moe/experts/expert_bank.h"
#include "moe/moe_layer.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "runtime/base/error.h"
#include "runtime/recipe/config.h"
#include "runtime/recipe/config_reader.h"

// D width  H hidden width
namespace shoal {
namespace {

const std::string kMoe = ".moe";
const std::string kMlp = ".mlp";
constexpr const char* kKeysThatMayDiffer =
    "of the keys of model only moe, sparse_blocks, drop_path, init_from and upcycle may differ "
    "from the checkpoint's";

/// A MoE layer and the names of its module and of the dense MLP whose place it takes.
struct Stage {
  std::string name, dense;
  std::shared_ptr<MoeLayer> layer;  ///< null: units of another kind
};

/// Throws ConfigError for a stage in no dense MLP's place.
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
  return stages;
}

/// What keeps a layer whose experts are all alike from being one of them.
std::vector<std::string> objections(const MoeLayer& layer) {
  const MoeOptions& options = layer.options();
  std::vector<std::string> lines;
  if (!layer.router().weights_sum_to_one()) {
    lines.emplace_back(
        "model.moe.router: with model.upcycle the weights of a token's experts must sum to 1, so "
        "that experts that are all alike say what the dense MLP says; use top_k, or another router "
        "whose tokens choose and that drops none, with weights: {normalise: topk_softmax} or "
        "{normalise: sum}, k of 2 or more and scale 1");
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
  if (options.experts.name() != "plain") {
    lines.emplace_back(
        "model.moe.experts.kind: with model.upcycle experts are what the dense MLP "
        "is; use plain");
  } else if (!options.experts.options<ExpertBank>().bias) {
    lines.emplace_back(
        "model.moe.experts.bias: the dense MLP that model.upcycle copies has biases; use true");
  }
  return lines;
}

void check_stages(const std::vector<Stage>& stages) {
  if (stages.empty()) {
    throw ConfigError(
        "model.upcycle: the model has no experts that could start from dense MLPs; set model.moe, "
        "or leave upcycle out");
  }
  // All stages come from one section of the recipe.
  const std::vector<std::string> lines = objections(*stages.front().layer);
  if (!lines.empty()) throw ConfigError(lines);
}

/// A parameter of the model and what it is filled from: itself or, as long as the dense MLP's
/// matrix is to be turned and copied, a tensor of that one's shape.
struct Source {
  const Parameter* parameter = nullptr;
  std::string name;     ///< in the checkpoint
  torch::Tensor value;  ///< its memory
  bool is_copied = false;
};

/// The tensor of a dense MLP that an expert's one is a copy of: a Linear keeps [out, in].
torch::Tensor dense_like(const torch::Tensor& stacked) {
  const at::IntArrayRef expert = stacked.sizes().slice(1);
  const std::vector<int64_t> turned(expert.rbegin(), expert.rend());
  return torch::empty(turned, stacked.options().requires_grad(false));
}

std::vector<const Parameter*> weights_of(const BuiltModel& model) {
  std::vector<const Parameter*> weights;
  for (const std::vector<Parameter>* list : {&model.parameters, &model.buffers}) {
    for (const Parameter& weight : *list) weights.push_back(&weight);
  }
  return weights;
}

/// What the model takes from the checkpoint: all but routers.
std::vector<Source> sources_of(const BuiltModel& model, const std::vector<Stage>& stages) {
  std::vector<Source> sources;
  for (const Parameter* weight : weights_of(model)) {
    const Stage* owner = nullptr;
    for (const Stage& stage : stages) {
      if (weight->name.starts_with(stage.name + ".")) owner = &stage;
    }
    if (owner == nullptr) {
      sources.push_back({weight, weight->name, weight->tensor.detach(), false});
    } else if (weight->is_stacked()) {
      const std::string end = weight->name.substr(weight->name.find(".*.") + 2);
      sources.push_back({weight, owner->dense + end, dense_like(weight->tensor), true});
    }
  }
  return sources;
}

class Sources : public Stateful {
 public:
  explicit Sources(std::vector<Source>& sources) : sources_(sources) {}
  void visit_state(StateVisitor& visitor) override {
    for (Source& source : sources_) {
      const Parameter& parameter = *source.parameter;
      if (source.is_copied) {
        visitor.tensor({source.name, source.value});
      } else {
        visitor.tensor({source.name, source.value, parameter.is_stacked(), parameter.unit_ids});
      }
    }
  }

 private:
  std::vector<Source>& sources_;
};

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ExitCode::kMismatch, "model.upcycle: " + what, hint);
}

/// What lets the experts have the hidden widths of the dense MLPs: one for all, or `auto`.
std::string hidden_hint(const std::vector<Source>& sources, const Manifest& manifest) {
  std::map<int64_t, std::string> name_of_hidden;
  bool is_auto = true;
  for (const Source& source : sources) {
    const bool is_first = source.is_copied && source.name.ends_with("fc1.weight");
    const ManifestTensor* dense = is_first ? manifest.find_tensor(source.name) : nullptr;
    if (dense == nullptr || dense->shape.size() != 2) continue;
    const int64_t hidden = dense->shape[0], width = dense->shape[1];
    name_of_hidden.emplace(hidden, source.name);
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

void check_shapes(const std::vector<Source>& sources, const std::string& checkpoint,
                  const Manifest& manifest) {
  for (const Source& source : sources) {
    if (!source.is_copied) continue;
    const std::vector<int64_t> expert = source.parameter->tensor.sizes().slice(1).vec();
    const std::string wanted = fmt::format("the experts '{}' are [{}] each", source.parameter->name,
                                           fmt::join(expert, ", "));
    const ManifestTensor* dense = manifest.find_tensor(source.name);
    if (dense == nullptr) {
      refuse(fmt::format("{}, but checkpoint '{}' has no dense '{}' to copy", wanted, checkpoint,
                         source.name),
             "init_from must be a dense model of the same backbone, depth and width");
    }
    if (at::IntArrayRef(dense->shape).equals(source.value.sizes())) continue;
    const std::vector<int64_t> turned(dense->shape.rbegin(), dense->shape.rend());
    const bool is_hidden = source.name.ends_with("fc1.bias") ||
                           (turned.size() == 2 && expert.size() == 2 && turned[0] == expert[0]);
    refuse(fmt::format("{}, '{}' of checkpoint '{}' is [{}]{}", wanted, source.name, checkpoint,
                       fmt::join(dense->shape, ", "),
                       turned.size() == 2
                           ? fmt::format(", or [{}] as experts keep it", fmt::join(turned, ", "))
                           : ""),
           is_hidden ? hidden_hint(sources, manifest)
                     : "use the width that the checkpoint was trained with");
  }
}

/// The checkpoint's own model, without memory for it.
BuiltModel dense_twin(const Manifest& manifest) {
  const auto recipe = config::load_options_text<Recipe>(manifest.recipe, "the checkpoint's recipe",
                                                        {}, config::UnsetVariable::kKeep);
  return build_model(recipe.options, make_source(recipe.options)->shape(), nullptr, torch::kMeta);
}

void check_activations(const std::vector<Stage>& stages, const Task& twin) {
  const auto modules = twin.named_modules();
  for (const Stage& stage : stages) {
    const auto* module = modules.find(stage.dense);
    const auto* mlp = module == nullptr ? nullptr : (*module)->as<MlpImpl>();
    if (mlp == nullptr) refuse("the checkpoint's " + stage.dense + " is no dense MLP", "");
    const Activation dense = activation_of(mlp->gelu());
    const Activation expert = stage.layer->options().experts.options<ExpertBank>().activation;
    if (dense == expert) continue;
    refuse(fmt::format("the experts of {} have the activation {}, the checkpoint's {} has {}",
                       stage.name, enum_name(expert), stage.dense, enum_name(dense)),
           fmt::format("set model.moe.experts.activation={}", enum_name(dense)));
  }
}

void check_all_used(const std::vector<Source>& sources, const BuiltModel& twin,
                    const std::string& checkpoint) {
  std::set<std::string> used;
  for (const Source& source : sources) used.insert(source.name);
  for (const Parameter* weight : weights_of(twin)) {
    if (used.contains(weight->name)) continue;
    refuse(
        fmt::format("'{}' of checkpoint '{}' has no place in this model", weight->name, checkpoint),
        kKeysThatMayDiffer);
  }
}

}  // namespace

void check_upcycling(const BuiltModel& model) { check_stages(stages_of(*model.task)); }

void load_upcycled(const std::string& checkpoint, const BuiltModel& model, Communicator& world) {
  const std::vector<Stage> stages = stages_of(*model.task);
  check_stages(stages);
  std::vector<Source> sources = sources_of(model, stages);
  const Manifest manifest = read_manifest(checkpoint, world);
  check_shapes(sources, checkpoint, manifest);
  const BuiltModel twin = dense_twin(manifest);
  check_activations(stages, *twin.task);
  check_all_used(sources, twin, checkpoint);

  Sources state(sources);
  load_checkpoint(checkpoint, state, world, {.ignore_extra = true});
  const torch::NoGradGuard no_grad;
  for (const Source& source : sources) {
    if (!source.is_copied) continue;
    const bool is_matrix = source.value.dim() == 2;
    torch::Tensor experts = source.parameter->tensor;
    experts.copy_((is_matrix ? source.value.t() : source.value).unsqueeze(0).expand_as(experts));
  }
}

void require_same_model(const std::vector<RecipeDifference>& differences) {
  std::vector<RecipeDifference> other;
  for (const RecipeDifference& difference : differences) {
    const std::string& path = difference.path;
    const auto is = [&](std::string_view key) {
      return path == key || path.starts_with(std::string(key) + ".");
    };
    const bool may_differ = is("model.moe") || is("model.sparse_blocks") || is("model.drop_path") ||
                            is("model.init_from") || is("model.upcycle");
    if (is("model") && !may_differ) other.push_back(difference);
  }
  if (other.empty()) return;
  refuse("the model would not say what the dense one says:" + describe(other), kKeysThatMayDiffer);
}

}  // namespace shoal
