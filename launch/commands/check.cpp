#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launch/commands/commands.h"
#include "launch/report/console.h"
#include "launch/train/check_recipe.h"
#include "runtime/base/text.h"
#include "runtime/device/device.h"
#include "runtime/recipe/enum_name.h"

namespace shoal {
namespace {

/// 59111472 as "59,111,472".
std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

void print_text(const CheckedRecipe& checked, int64_t world, std::ostream& out) {
  const Recipe& recipe = checked.loaded.options;
  const ModelCounts& counts = checked.counts;
  const TrainOptions& train = recipe.train;
  out << fmt::format("model       {}, {} parameters ({} without head, {} active per token)\n",
                     recipe.model.backbone.name(), grouped(counts.parameters),
                     grouped(counts.parameters_headless), grouped(counts.active_parameters));
  for (const MoeStageInfo& stage : counts.stages) {
    out << fmt::format("            {}: {}, {} per token\n", stage.name,
                       counted(stage.num_units, "unit"), stage.units_per_token);
  }
  out << fmt::format("ranks       {} = {} x {}\n", world,
                     counted(recipe.parallel.expert_ranks, "expert rank"),
                     counted(world / recipe.parallel.expert_ranks, "replica"));
  out << fmt::format("step        {} in {} of {} of {}\n", counted(train.batch, "sample"),
                     counted(train.accumulate, "micro-step"),
                     counted(train.batch / train.accumulate / train.group, "routing group"),
                     train.group);
  out << fmt::format("training    {} with {}, schedule {}\n", to_text(train.duration),
                     recipe.optimizer.name(), recipe.schedule.name());
  const CheckpointSize& checkpoint = counts.checkpoint;
  out << fmt::format("checkpoint  up to {} in {}, manifest {}, largest header of a shard {}\n",
                     human_bytes(static_cast<double>(checkpoint.data_bytes)),
                     counted(static_cast<int64_t>(checkpoint.num_shards), "shard"),
                     human_bytes(static_cast<double>(checkpoint.manifest_bytes)),
                     human_bytes(static_cast<double>(checkpoint.largest_header_bytes)));
  const bool is_auto = recipe.run.device == DeviceKind::kAuto;
  out << fmt::format(
      "device      {}{}\n", enum_name(recipe.run.device),
      is_auto ? ": decided where training starts; `shoal doctor` examines a machine" : "");
  for (const std::string& note : recipe_notes(checked)) out << "note        " << note << "\n";
  // Only files are looked for: a machine that checks recipes need not have the GPUs that train
  // them.
  const std::string absence = recipe.run.device == DeviceKind::kCuda ? cuda_absence() : "";
  out << (absence.empty() ? "good\n" : "good, but this machine cannot run it: " + absence + "\n");
}

}  // namespace

ExitCode check(const CheckArguments& arguments, std::ostream& out) {
  const CheckedRecipe checked =
      check_recipe(arguments.source, config::UnsetVariable::kKeep, arguments.world);
  const ModelCounts& counts = checked.counts;
  const int64_t world = arguments.world.value_or(checked.loaded.options.parallel.expert_ranks);
  if (arguments.json) {
    out << nlohmann::ordered_json{{"parameters", counts.parameters},
                                  {"parameters_headless", counts.parameters_headless},
                                  {"active_parameters", counts.active_parameters},
                                  {"world", world}}
        << "\n";
  } else {
    print_text(checked, world, out);
  }
  return ExitCode::kOk;
}

}  // namespace shoal
