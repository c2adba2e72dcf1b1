#include "launch/commands/open_checkpoint.h"

#include <fmt/format.h>

#include <utility>

#include "launch/job/rank_devices.h"
#include "launch/job/rank_facts.h"
#include "launch/train/restore.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "runtime/base/error.h"

namespace shoal {
namespace {

Recipe recipe_of(const OpenedCheckpoint& opened, const std::vector<std::string>& overrides,
                 const Environment& environment) {
  return config::load_options_text<Recipe>(opened.manifest.recipe,
                                           opened.path + "/manifest.json (its recipe)",
                                           {"", overrides, environment})
      .options;
}

/// The seed also decides the experts of hashed tokens: with another one they would be experts that
/// were never trained on these tokens.
void require_own_seed(const OpenedCheckpoint& opened, const Environment& environment) {
  const int64_t own = recipe_of(opened, {}, environment).run.seed;
  if (opened.recipe.run.seed == own) return;
  throw ConfigError(
      fmt::format("run.seed: the model was trained with seed {}, got {}; leave it out", own,
                  opened.recipe.run.seed));
}

}  // namespace

OpenedCheckpoint open_checkpoint(const CheckpointChoice& choice, const LaunchInfo& launch,
                                 const Environment& environment, Communicator& guard) {
  OpenedCheckpoint opened;
  opened.path = agree_on_checkpoint(choice.path, choice.best, guard);
  opened.manifest = read_manifest(opened.path, guard);
  opened.recipe = recipe_of(opened, choice.overrides, environment);
  const Recipe& recipe = opened.recipe;
  require_own_seed(opened, environment);
  require_equal_ranks(guard, recipe);
  set_up_torch(recipe.run.threads, recipe.run.deterministic, launch);
  RankDevices devices = bind_ranks(recipe, launch, guard);
  opened.grid = make_rank_grid(guard.split(0, guard.rank()), guard.size(), /*ranks_per_node=*/0,
                               std::move(devices.gpu_world));
  opened.grid.device = devices.own.device;
  return opened;
}

}  // namespace shoal
