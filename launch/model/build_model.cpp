#include "launch/model/build_model.h"

#include <fmt/format.h>

#include "launch/job/launch_info.h"
#include "launch/model/sparse_layers.h"
#include "moe/moe_layer.h"
#include "runtime/base/error.h"
#include "runtime/base/size_limits.h"

namespace shoal {

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
  ModelContext build;
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

}  // namespace shoal
