#include "launch/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "launch/session.h"
#include "runtime/config_writer.h"
#include "runtime/suggest.h"

namespace shoal {
namespace {

/// Units of the stage that owns this parameter which one token does not visit, in elements.
int64_t idle_elements(const Parameter& parameter, const std::vector<MoeStageInfo>& stages) {
  if (!parameter.is_stacked()) return 0;
  for (const MoeStageInfo& stage : stages) {
    if (parameter.name.find("." + stage.name + ".") == std::string::npos) continue;
    return parameter.tensor.numel() / stage.num_units * (stage.num_units - stage.units_per_token);
  }
  throw std::logic_error(parameter.name + " belongs to no MoE stage of its backbone");
}

constexpr int64_t kMaxListed = 4096;

/// As words, those up to 4096.
std::vector<std::string> divisors(int64_t number) {
  std::vector<std::string> result;
  for (int64_t i = 1; i <= std::min(number, kMaxListed); ++i) {
    if (number % i == 0) result.push_back(std::to_string(i));
  }
  return result;
}

std::string quotient(int64_t a, int64_t b) {
  return fmt::format("{} / {} = {:.4g}", a, b, static_cast<double>(a) / static_cast<double>(b));
}

void collect_global_scopes(const config::Node& node, const std::string& path,
                           std::vector<std::string>& found) {
  for (const config::Entry& entry : node.entries) {
    const std::string inner = config::join_path(path, entry.key);
    if (entry.key == "scope" && entry.value.text == "global") found.push_back(inner);
    collect_global_scopes(entry.value, inner, found);
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    collect_global_scopes(node.items[i], fmt::format("{}[{}]", path, i), found);
  }
}

void check_durations(const Recipe& recipe, Problems& problems) {
  // The true length of an epoch needs the data; whether a duration can be counted does not.
  StepScale scale{.samples_per_epoch = recipe.train.batch, .samples_per_step = recipe.train.batch};
  const auto count = [&](const char* path, const std::optional<Duration>& duration) {
    if (!duration || duration->is_time()) return int64_t{1};
    try {
      return to_steps(*duration, scale);
    } catch (const ConfigError& error) {
      problems.add(path, error.what());
      return int64_t{1};
    }
  };
  scale.total_steps = count("train.duration", recipe.train.duration);
  count("train.log_every", recipe.train.log_every);
  count("evaluate.every", recipe.evaluate.every);
  count("checkpoint.every", recipe.checkpoint.every);
  try {
    Registry<Schedule>::create(recipe.schedule, scale);
  } catch (const ConfigError& error) {
    problems.add("schedule", error.what());
  }
}

}  // namespace

ModelCounts count_parameters(const Recipe& recipe) {
  const BuiltModel model = build_model(recipe, nullptr, torch::kMeta);
  ModelCounts counts;
  counts.stages = model.backbone->moe_stages();
  for (const Parameter& parameter : model.parameters) {
    counts.parameters += parameter.tensor.numel();
    counts.active_parameters += parameter.tensor.numel() - idle_elements(parameter, counts.stages);
  }
  counts.parameters_headless = counts.parameters - model.task->head_parameters();
  return counts;
}

void check_topology(const LoadedRecipe& loaded, const std::vector<MoeStageInfo>& stages,
                    int64_t world) {
  const ParallelOptions& parallel = loaded.options.parallel;
  const int64_t ranks = parallel.expert_ranks;
  config::Diagnostics diagnostics;
  config::LocatedProblems problems(loaded.document.root, "parallel", diagnostics);
  std::map<int64_t, std::vector<std::string>> stages_of_count;
  int64_t common = 0;  // divisor of all unit counts that must divide
  for (const MoeStageInfo& stage : stages) {
    if (parallel.uneven) break;
    stages_of_count[stage.num_units].push_back(stage.name);
    common = std::gcd(common, stage.num_units);
  }
  const std::string choices = fmt::format("valid expert_ranks for {} ranks: {}", world,
                                          join_words(divisors(std::gcd(common, world))));
  if (world % ranks != 0) {
    const int64_t above = (world / ranks + 1) * ranks;
    const std::string counts =
        world > ranks ? fmt::format("{} or {}", above - ranks, above) : std::to_string(ranks);
    const std::string other_worlds =
        common % ranks == 0 ? fmt::format("; or start {} ranks", counts) : "";
    problems.add("expert_ranks", fmt::format("world = expert_ranks x replicas, but {}; {}{}",
                                             quotient(world, ranks), choices, other_worlds));
  }
  for (const auto& [num_units, names] : stages_of_count) {
    if (num_units % ranks == 0) continue;
    problems.add("expert_ranks",
                 fmt::format("the units of {} do not divide evenly: {}; {}; or "
                             "parallel.uneven=true",
                             join_words(names), quotient(num_units, ranks), choices));
  }
  diagnostics.throw_if_any(ExitCode::kTopology);
}

void check_topology(const LoadedRecipe& loaded, int64_t world) {
  const BuiltModel model = build_model(loaded.options, nullptr, torch::kMeta);
  check_topology(loaded, model.backbone->moe_stages(), world);
}

void check_training(const LoadedRecipe& loaded) {
  config::Diagnostics diagnostics;
  config::LocatedProblems problems(loaded.document.root, "", diagnostics);
  check_durations(loaded.options, problems);
  config::LocatedProblems data_problems(loaded.document.root, "data", diagnostics);
  make_source(loaded.options)->check_training(data_problems);
  diagnostics.throw_if_any();
}

void check_model(const LoadedRecipe& loaded) {
  config::Diagnostics diagnostics;
  config::LocatedProblems problems(loaded.document.root, "", diagnostics);
  try {
    const BuiltModel model = build_model(loaded.options, nullptr, torch::kMeta);
    Registry<Optimizer>::create(loaded.options.optimizer, model.parameters);
  } catch (const ConfigError& error) {
    for (const std::string& line : error.lines()) {
      const size_t colon = line.find(": ");
      if (colon == std::string::npos) throw;
      problems.add(line.substr(0, colon), line.substr(colon + 2));
    }
  }
  diagnostics.throw_if_any();
}

std::vector<std::string> recipe_notes(const LoadedRecipe& loaded) {
  std::vector<std::string> notes;
  const auto& type = static_cast<const config::StructType&>(config::type_of<Recipe>());
  std::vector<std::string> scopes;
  collect_global_scopes(config::to_node(type, &loaded.options), "", scopes);
  for (const std::string& path : scopes) {
    notes.push_back(path + ": the value of a loss of scope global depends on train.accumulate");
  }
  return notes;
}

}  // namespace shoal
