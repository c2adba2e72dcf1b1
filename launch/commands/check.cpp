#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launch/commands/commands.h"
#include "launch/train/check_recipe.h"
#include "runtime/base/text.h"
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
  out << fmt::format("device      {}\n",
                     recipe.run.device == DeviceKind::kCpu
                         ? "cpu"
                         : fmt::format("{}, not looked for here: training and `shoal doctor` do",
                                       enum_name(recipe.run.device)));
  for (const std::string& note : recipe_notes(checked)) {
    out << "note        " << note << "\n";
  }
  out << "good\n";
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
