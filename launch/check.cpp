#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launch/checks.h"
#include "launch/commands.h"

namespace shoal {
namespace {

/// 59111472 as "59,111,472".
std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

void print_text(const LoadedRecipe& loaded, const ModelCounts& counts, int64_t world,
                std::ostream& out) {
  const Recipe& recipe = loaded.options;
  const TrainOptions& train = recipe.train;
  out << fmt::format("model       {}, {} parameters ({} without head, {} active per token)\n",
                     recipe.model.backbone.name(), grouped(counts.parameters),
                     grouped(counts.parameters_headless), grouped(counts.active_parameters));
  for (const MoeStageInfo& stage : counts.stages) {
    out << fmt::format("            {}: {} units, {} per token\n", stage.name, stage.num_units,
                       stage.units_per_token);
  }
  out << fmt::format("ranks       {} = {} expert ranks x {} replicas\n", world,
                     recipe.parallel.expert_ranks, world / recipe.parallel.expert_ranks);
  out << fmt::format("step        {} samples in {} micro-steps of {} routing groups of {}\n",
                     train.batch, train.accumulate, train.batch / train.accumulate / train.group,
                     train.group);
  out << fmt::format("training    {} with {}, schedule {}\n", to_text(train.duration),
                     recipe.optimizer.name(), recipe.schedule.name());
  for (const std::string& note : recipe_notes(loaded)) out << "note        " << note << "\n";
  out << "good\n";
}

}  // namespace

ExitCode check(const CheckArguments& arguments, std::ostream& out) {
  const LoadedRecipe loaded =
      config::load_options<Recipe>(arguments.source, config::UnsetVariable::kKeep);
  const int64_t world = arguments.world.value_or(loaded.options.parallel.expert_ranks);
  check_training(loaded);
  ModelCounts counts;
  try {
    check_model(loaded);
    counts = count_parameters(loaded.options);
  } catch (const Error&) {
    check_topology(loaded, {}, world);  // the model's own rules may hide this one
    throw;
  }
  check_topology(loaded, counts.stages, world);
  if (arguments.json) {
    out << nlohmann::ordered_json{{"parameters", counts.parameters},
                                  {"parameters_headless", counts.parameters_headless},
                                  {"active_parameters", counts.active_parameters},
                                  {"world", world}}
        << "\n";
  } else {
    print_text(loaded, counts, world, out);
  }
  return ExitCode::kOk;
}

}  // namespace shoal
