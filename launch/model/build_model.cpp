#include "launch/model/build_model.h"

#include <fmt/format.h>

#include "launch/job/launch_info.h"
#include "launch/model/sparse_layers.h"
#include "moe/moe_layer.h"
#include "runtime/base/error.h"
#include "runtime/base/size_limits.h"

namespace shoal {

torch::Dtype dtype_of(const Recipe& recipe) {
  return recipe.train.precision == Precision::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

torch::Dtype compute_dtype_of(const Recipe& recipe) {
  return recipe.train.precision == Precision::kBfloat16 ? torch::kBFloat16 : dtype_of(recipe);
}

std::shared_ptr<const DataSource> make_source(const Recipe& recipe,
                                              const config::Environment& environment) {
  return Registry<DataSource>::create(recipe.data.source,
                                      {.seed = static_cast<uint64_t>(recipe.run.seed),
                                       .evaluation_stride = recipe.evaluate.stride,
                                       .cache_folder = cache_folder(environment)});
}

void check_stride(const Recipe& recipe, const DataSource& source) {
  const std::optional<int64_t> stride = recipe.evaluate.stride;
  if (!stride) return;
  const DataShape data = source.shape();
  if (!source.has_windows()) {
    throw ConfigError(fmt::format(
        "evaluate.stride: the samples of data.source {} are no windows of a text; leave it out",
        data.source));
  }
  if (*stride > data.sequence) {
    throw ConfigError(
        fmt::format("evaluate.stride: {} would leave tokens out, as windows have {}; "
                    "at most data.sequence",
                    *stride, data.sequence));
  }
}

void check_units(const std::vector<std::shared_ptr<MoeStage>>& stages, torch::Device device) {
  if (!device.is_cuda()) return;
  for (const auto& stage : stages) {
    const bool routes_tokens = std::dynamic_pointer_cast<MoeLayer>(stage) != nullptr;
    const int64_t num_units = stage->info().num_units;
    if (!routes_tokens || num_units <= kMostUnitsOnGpu) continue;
    throw ConfigError(fmt::format("{}: {} units, a GPU routes to at most {}; lower experts.count, "
                                  "or set run.device=cpu",
                                  stage->path(), num_units, kMostUnitsOnGpu),
                      ExitCode::kTopology);
  }
}

BuiltModel build_model(const Recipe& recipe, const DataShape& data, RankGrid* grid,
                       torch::Device device, const UnitLoads& unit_load) {
  BuildContext build;
  build.grid = grid;
  build.tensor_options = torch::TensorOptions().dtype(dtype_of(recipe)).device(device);
  build.compute_dtype = compute_dtype_of(recipe);
  build.recomputes = recipe.train.recompute;
  build.placement = recipe.parallel.placement;
  build.unit_load = unit_load;
  BuiltModel model;
  model.task = Registry<Task>::create(
      recipe.task, {build, data, backbone_factory(recipe.model.backbone, build, data)});
  model.stages = moe_stages_of(*model.task);
  const std::set<const torch::nn::Module*> untrained = untrained_modules(*model.task);
  for (const auto& module : model.task->modules()) {
    auto* follower = dynamic_cast<AfterStep*>(module.get());
    if (follower != nullptr && !untrained.contains(module.get())) {
      model.after_step.push_back(follower);
    }
    if (const auto* gate = dynamic_cast<const TokenGateImpl*>(module.get())) {
      model.gates.push_back(gate);
    }
  }
  check_units(model.stages, device);
  model.parameters = parameters_of(*model.task);
  if (recipe.sparsity) add_low_rank_branches(recipe, model);
  model.buffers = buffers_of(*model.task);
  freeze_parameters(rules_of(recipe.optimizer), model.parameters);
  if (!device.is_meta()) {
    initialise(model.parameters, static_cast<uint64_t>(recipe.run.seed));
    initialise(model.buffers, static_cast<uint64_t>(recipe.run.seed));
  }
  if (recipe.sparsity) form_layers(recipe, model);
  return model;
}

std::shared_ptr<MoeStage> stage_of(const Parameter& parameter, const BuiltModel& model) {
  if (!parameter.is_stacked()) return nullptr;
  for (const auto& stage : model.stages) {
    const std::string prefix = stage->path() + ".";
    const std::string& name = parameter.name;
    if (name.starts_with(prefix) || name.starts_with("backbone." + prefix)) return stage;
  }
  throw std::logic_error(parameter.name + " belongs to no MoE stage of its model");
}

std::set<const torch::nn::Module*> untrained_modules(const Task& task) {
  std::set<const torch::nn::Module*> inside;
  for (const auto& root : task.untrained()) {
    for (const auto& module : root->modules()) inside.insert(module.get());
  }
  return inside;
}

void ModelWeights::visit_state(StateVisitor& visitor) {
  for (const Parameter& weight : list) {
    torch::Tensor value = weight.tensor.detach();
    visitor.tensor({weight.name, value, weight.is_stacked(), weight.unit_ids});
  }
  for (const auto& permutation : permutations) permutation->visit_state(visitor);
  for (const auto& cells : soft_cells) cells->visit_state(visitor);
}

void ModelWeights::fit_to(const SavedNames& saved) {
  for (const auto& permutation : permutations) permutation->fit_to(saved);
  for (const auto& cells : soft_cells) cells->fit_to(saved);
}

void ModelWeights::tensors_loaded() {
  for (const auto& permutation : permutations) permutation->tensors_loaded();
}

ModelWeights weights_of(const BuiltModel& model) {
  ModelWeights weights;
  weights.list = model.parameters;
  weights.list.insert(weights.list.end(), model.buffers.begin(), model.buffers.end());
  weights.permutations = model.permutations;
  weights.soft_cells = model.soft_cells;
  return weights;
}

int64_t count_elements(const std::vector<Parameter>& parameters) {
  int64_t total = 0;
  for (const Parameter& parameter : parameters) total += parameter.tensor.numel();
  return total;
}

}  // namespace shoal
