#include "launch/weights/open_checkpoint.h"

#include <fmt/format.h>

#include <iostream>
#include <utility>

#include "launch/job/rank_devices.h"
#include "launch/job/rank_facts.h"
#include "launch/machine/break_even_file.h"
#include "launch/model/model_weights.h"
#include "launch/runs/run_folder.h"
#include "launch/weights/init_from.h"
#include "launch/weights/load_weights.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "parallel/comm/on_rank_zero.h"
#include "sparse/sparse_model.h"

namespace shoal {
namespace {

/// All but the grid. Collective.
OpenedCheckpoint open_recipe(const CheckpointChoice& choice, const Environment& environment,
                             Communicator& guard) {
  OpenedCheckpoint opened;
  // As rank 0 sees it: a run that is being trained may commit another one meanwhile.
  opened.path = on_rank_zero(guard, [&] { return choose_checkpoint(choice); });
  opened.manifest = read_manifest(opened.path, guard);
  opened.recipe = config::load_options_text<Recipe>(opened.manifest.recipe,
                                                    opened.path + "/manifest.json (its recipe)",
                                                    {"", choice.overrides, environment})
                      .options;
  opened.raw_weights = choice.raw_weights;
  opened.override_model = choice.override_model;
  return opened;
}

/// For a recipe that lets them decide; ranks have equal recipes. Collective.
BreakEvens break_evens_of(const OpenedCheckpoint& opened, const Environment& environment,
                          Communicator& world) {
  const Recipe& recipe = opened.recipe;
  if (!recipe.sparsity || recipe.sparsity->execution != SparseExecution::kAuto) return {};
  const std::string folder = recipe.run.deterministic ? "" : cache_folder(environment);
  return choose_break_evens(opened.manifest.written_by, folder, world).values;
}

/// Sparse kernels compute the products of the model's layers, where they can; weights come with the
/// masks of these layers, which are left to dense products if the checkpoint has none.
ModelWeights weights_to_run(const BuiltModel& model, const BreakEvens& break_evens) {
  ModelWeights weights = weights_of(model);
  if (model.sparse == nullptr) return weights;
  model.sparse->run_by(break_evens);
  weights.sparse = model.sparse->state();
  std::erase_if(weights.sparse.masked,
                [&](size_t layer) { return model.sparse->masks().product(layer) == nullptr; });
  return weights;
}

}  // namespace

std::string choose_checkpoint(const CheckpointChoice& choice) {
  require_path(choice.path);
  const auto warn = [](const std::string& line) { std::cerr << "warning: " << line << std::endl; };
  return resolve_checkpoint(choice.path, choice.best, choice.override_model, warn);
}

OpenedCheckpoint open_checkpoint(const CheckpointChoice& choice, const LaunchInfo& launch,
                                 const Environment& environment, Communicator& guard) {
  OpenedCheckpoint opened = open_recipe(choice, environment, guard);
  const Recipe& recipe = opened.recipe;
  require_equal_ranks(guard, recipe);
  set_up_torch(recipe.run.threads, recipe.run.deterministic, launch);
  RankDevices devices = bind_ranks(recipe, launch, guard);
  opened.grid = make_rank_grid(guard.split(0, guard.rank()), guard.size(), /*ranks_per_node=*/0,
                               std::move(devices.gpu_world));
  opened.grid.device = devices.own.device;
  opened.break_evens = break_evens_of(opened, environment, *opened.grid.world);
  return opened;
}

OpenedCheckpoint open_checkpoint_alone(const CheckpointChoice& choice,
                                       const Environment& environment) {
  std::unique_ptr<Communicator> self = make_self_communicator();
  OpenedCheckpoint opened = open_recipe(choice, environment, *self);
  check_precision(opened.recipe.train.precision, torch::kCPU);
  opened.break_evens = break_evens_of(opened, environment, *self);
  opened.grid = make_rank_grid(std::move(self), 1);
  return opened;
}

int64_t load_model(const OpenedCheckpoint& opened, const BuiltModel& model) {
  require_own_seed(opened.manifest, opened.recipe, model);
  Communicator& world = *opened.grid.world;
  load_weights(opened.path, weights_to_run(model, opened.break_evens), world, opened.raw_weights);
  const std::string other = describe_other_function(opened.manifest, opened.recipe, model, world);
  if (!other.empty()) {
    const std::string what = "the model is not the one that the weights were trained in:" + other;
    if (!opened.override_model) {
      throw Error(ExitCode::kMismatch, what,
                  "leave these keys as the checkpoint has them, or accept this with --override");
    }
    if (world.rank() == 0) std::cerr << "warning: " << what << std::endl;
  }
  return model.sparse == nullptr ? 0 : model.sparse->masks().run_by_kernels();
}

}  // namespace shoal
