#include "launch/commands/open_checkpoint.h"

#include <utility>

#include "launch/job/rank_devices.h"
#include "launch/job/rank_facts.h"
#include "launch/train/restore.h"
#include "parallel/checkpoint/checkpoint_load.h"

namespace shoal {

OpenedCheckpoint open_checkpoint(const CheckpointChoice& choice, const LaunchInfo& launch,
                                 const Environment& environment, Communicator& guard) {
  OpenedCheckpoint opened;
  opened.path = agree_on_checkpoint(choice.path, choice.best, guard);
  opened.manifest = read_manifest(opened.path, guard);
  opened.recipe = config::load_options_text<Recipe>(opened.manifest.recipe,
                                                    opened.path + "/manifest.json (its recipe)",
                                                    {"", choice.overrides, environment})
                      .options;
  const Recipe& recipe = opened.recipe;
  require_equal_ranks(guard, recipe);
  set_up_torch(recipe.run.threads, recipe.run.deterministic, launch);
  RankDevices devices = bind_ranks(recipe, launch, guard);
  opened.grid = make_rank_grid(guard.split(0, guard.rank()), guard.size(), /*ranks_per_node=*/0,
                               std::move(devices.gpu_world));
  opened.grid.device = devices.own.device;
  return opened;
}

}  // namespace shoal
