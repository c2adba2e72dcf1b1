#include "launch/train/check_recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "launch/train/session.h"
#include "launch/train/upcycle.h"
#include "moe/exchange/row_exchange.h"
#include "runtime/base/text.h"
#include "runtime/recipe/config_writer.h"

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

/// Those up to 4096.
std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> result;
  for (int64_t i = 1; i <= std::min(number, kMaxListed); ++i) {
    if (number % i == 0) result.push_back(i);
  }
  return result;
}

std::string quotient(int64_t a, int64_t b) {
  return fmt::format("{} / {} = {:.4g}", a, b, static_cast<double>(a) / static_cast<double>(b));
}

/// What is worth a word in a recipe's text, below `path`.
void collect_notes(const config::Node& node, const std::string& path,
                   std::vector<std::string>& notes) {
  for (const config::Entry& entry : node.entries) {
    const std::string inner = config::join_path(path, entry.key);
    if (entry.key == "scope" && entry.value.text == "global") {
      notes.push_back(inner + ": the value of a loss of scope global depends on train.accumulate");
    }
    collect_notes(entry.value, inner, notes);
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    collect_notes(node.items[i], fmt::format("{}[{}]", path, i), notes);
  }
}

/// Runs a rule; what it throws, lines of `PATH: what`, is added.
template <class Rule>
void apply(const Rule& rule, Problems& problems) {
  try {
    rule();
  } catch (const ConfigError& error) {
    for (const std::string& line : error.lines()) {
      const size_t colon = line.find(": ");
      const bool has_path = colon != std::string::npos;
      problems.add(has_path ? line.substr(0, colon) : "", has_path ? line.substr(colon + 2) : line);
    }
  }
}

ModelCounts count(const BuiltModel& model) {
  ModelCounts counts;
  counts.stages = model.backbone->moe_stages();
  for (const Parameter& parameter : model.parameters) {
    counts.parameters += parameter.tensor.numel();
    counts.active_parameters += parameter.tensor.numel() - idle_elements(parameter, counts.stages);
  }
  counts.parameters_headless = counts.parameters - model.task->head_parameters();
  return counts;
}

/// Nothing if the model cannot be built. `found`: by reading.
std::optional<ModelCounts> check_model(const Recipe& recipe, const config::Diagnostics& found,
                                       Problems& problems) {
  std::optional<ModelCounts> counts;
  // train.precision is read too, but no rule hangs on it.
  for (const char* section : {"data", "model", "task"}) {
    if (found.has_mistake_in(section)) return counts;
  }
  const auto rule = [&] {
    const BuiltModel model = build_model(recipe, nullptr, torch::kMeta);
    counts = count(model);
    if (recipe.model.upcycle) apply([&] { check_upcycling(model); }, problems);
    if (!found.has_mistake_in("optimizer")) {
      Registry<Optimizer>::create(recipe.optimizer, model.parameters);
    }
  };
  apply(rule, problems);
  return counts;
}

void check_durations(const Recipe& recipe, const config::Diagnostics& found, Problems& problems) {
  if (found.has_mistake_in("data")) return;
  // Whether a duration can be counted does not hang on how long an epoch or the training is. One
  // that could not be read keeps its default; the training's, which has none, counts as a step.
  StepScale scale{.samples_per_epoch = 1, .samples_per_step = 1};
  const auto count_steps = [&](const char* path, const std::optional<Duration>& duration) {
    if (!duration || duration->is_time()) return int64_t{1};
    try {
      return to_steps(*duration, scale);
    } catch (const ConfigError& error) {
      problems.add(path, error.what());
      return int64_t{1};
    }
  };
  scale.total_steps = std::max<int64_t>(1, count_steps("train.duration", recipe.train.duration));
  count_steps("train.log_every", recipe.train.log_every);
  count_steps("evaluate.every", recipe.evaluate.every);
  count_steps("checkpoint.every", recipe.checkpoint.every);
  try {
    Registry<Schedule>::create(recipe.schedule, scale);
  } catch (const ConfigError& error) {
    problems.add("schedule", error.what());
  }
}

void check_data(const LoadedRecipe& loaded, const config::Diagnostics& found,
                config::Diagnostics& diagnostics) {
  if (found.has_mistake_in("data")) return;
  config::LocatedProblems problems(loaded.document.root, "", diagnostics);
  config::LocatedProblems source_problems(loaded.document.root, "data", diagnostics);
  const auto rule = [&] {
    const std::shared_ptr<DataSource> source = make_source(loaded.options);
    source->check_training(source_problems);
    resolve_stats(loaded.options.data.normalise, source->channel_stats(),
                  source->image_shape().channels);
  };
  apply(rule, problems);
}

/// Names of the stages of each number of units.
using StagesOfCount = std::map<int64_t, std::vector<std::string>>;

/// Whether so many expert ranks can share units of these counts.
bool can_share(const StagesOfCount& stages, int64_t ranks, bool must_divide) {
  return std::all_of(stages.begin(), stages.end(), [&](const auto& entry) {
    return entry.first >= ranks && (!must_divide || entry.first % ranks == 0);
  });
}

/// Nodes are of equal size, where the world is known, and expert groups stand on them in equal
/// parts.
void check_nodes(const ParallelOptions& parallel, std::optional<int64_t> known_world,
                 Problems& problems) {
  if (!parallel.ranks_per_node) return;
  const int64_t node = *parallel.ranks_per_node, expert = parallel.expert_ranks;
  const int64_t world = known_world.value_or(node);
  if (world % node != 0) {
    std::vector<std::string> valid;
    for (const int64_t divisor : divisors(world)) valid.push_back(std::to_string(divisor));
    problems.add("ranks_per_node",
                 fmt::format("nodes of equal size are needed, but {}; divisors of {}: {}",
                             quotient(world, node), world, join_words(valid)));
  } else if (node % expert != 0 && expert % node != 0) {
    problems.add("ranks_per_node",
                 fmt::format("{} expert ranks would have unequal parts on nodes of {}; one must "
                             "divide the other",
                             expert, node));
  }
}

/// Where the rows of a layer may not be cut by unit, chunks are whole routing groups, and each
/// needs one.
void check_chunks(const Recipe& recipe, const std::vector<MoeStageInfo>& stages, int64_t world,
                  Problems& problems) {
  const TrainOptions& train = recipe.train;
  const ParallelOptions& parallel = recipe.parallel;
  const int64_t groups = train.batch / train.accumulate / train.group;
  const int64_t least = groups / world;
  if (parallel.expert_ranks == 1) return;  // nothing travels
  for (const MoeStageInfo& stage : stages) {
    // Of other placements and of nodes is not known here what they come to.
    const bool by_unit = parallel.placement == PlacementRule::kContiguous &&
                         cuts_by_unit(stage.num_chunks, stage.is_hierarchical,
                                      stage.num_units / parallel.expert_ranks);
    if (stage.num_chunks == 1 || by_unit || stage.num_chunks <= least) continue;
    problems.add("batch",
                 fmt::format("{} cuts its tokens into exchange.chunks = {} parts of whole routing "
                             "groups, but of the {} of {} samples in a micro-step a rank of {} "
                             "may have {}; {}train.group, or raise train.batch",
                             stage.name, stage.num_chunks, counted(groups, "group"), train.group,
                             world, least == 0 ? "none" : "only " + std::to_string(least),
                             least == 0 ? "set chunks to 1, lower " : "lower chunks or "));
  }
}

/// `stages`: null if they are not known, since the model has mistakes.
void check_ranks(const ParallelOptions& parallel, const std::vector<MoeStageInfo>* stages,
                 int64_t world, Problems& problems) {
  const int64_t ranks = parallel.expert_ranks;
  // Without a logged load by_load places as contiguous does.
  const bool must_divide = !parallel.uneven && parallel.placement != PlacementRule::kByCost;
  StagesOfCount stages_of_count;
  if (stages) {
    for (const MoeStageInfo& stage : *stages) {
      stages_of_count[stage.num_units].push_back(stage.name);
    }
  }
  std::vector<std::string> valid;
  for (const int64_t divisor : divisors(world)) {
    if (can_share(stages_of_count, divisor, must_divide)) valid.push_back(std::to_string(divisor));
  }
  const std::string choices = (stages ? "valid expert_ranks for " + counted(world, "rank")
                                      : "divisors of " + std::to_string(world)) +
                              ": " + join_words(valid);
  if (world % ranks != 0) {
    const int64_t above = (world / ranks + 1) * ranks;
    const std::string counts =
        world > ranks ? fmt::format("{} or {}", above - ranks, above) : std::to_string(ranks);
    const std::string other_worlds = stages && can_share(stages_of_count, ranks, must_divide)
                                         ? fmt::format("; or start {} ranks", counts)
                                         : "";
    problems.add("expert_ranks", fmt::format("world = expert_ranks x replicas, but {}; {}{}",
                                             quotient(world, ranks), choices, other_worlds));
  }
  for (const auto& [num_units, names] : stages_of_count) {
    if (num_units < ranks) {
      problems.add("expert_ranks",
                   fmt::format("{} of {} cannot be spread over {} expert ranks, some would hold "
                               "none; {}",
                               counted(num_units, "unit"), join_words(names), ranks, choices));
    } else if (must_divide && num_units % ranks != 0) {
      problems.add("expert_ranks",
                   fmt::format("the units of {} do not divide evenly: {}; {}; or "
                               "parallel.uneven=true",
                               join_words(names), quotient(num_units, ranks), choices));
    }
  }
}

}  // namespace

CheckedRecipe check_recipe(const config::RecipeSource& source, config::UnsetVariable unset,
                           std::optional<int64_t> world) {
  config::Diagnostics diagnostics;
  CheckedRecipe checked{config::read_options<Recipe>(source, unset, diagnostics), {}};
  const LoadedRecipe& loaded = checked.loaded;
  // Only what reading found makes a section unfit for further rules, not what they find.
  const config::Diagnostics found = diagnostics;
  config::LocatedProblems problems(loaded.document.root, "", diagnostics);
  std::optional<ModelCounts> counts = check_model(loaded.options, found, problems);
  check_durations(loaded.options, found, problems);
  check_data(loaded, found, diagnostics);
  const ExitCode code = diagnostics.size() == 0 ? ExitCode::kTopology : ExitCode::kRecipe;
  if (!found.has_mistake_in("parallel")) {
    config::LocatedProblems rank_problems(loaded.document.root, "parallel", diagnostics);
    const ParallelOptions& parallel = loaded.options.parallel;
    const int64_t ranks = world.value_or(parallel.expert_ranks);
    check_ranks(parallel, counts ? &counts->stages : nullptr, ranks, rank_problems);
    check_nodes(parallel, world, rank_problems);
    if (counts && !found.has_mistake_in("train")) {
      config::LocatedProblems train_problems(loaded.document.root, "train", diagnostics);
      check_chunks(loaded.options, counts->stages, ranks, train_problems);
    }
  }
  diagnostics.throw_if_any(code);
  checked.counts = std::move(counts).value();
  return checked;
}

void check_topology(const CheckedRecipe& checked, int64_t world) {
  const LoadedRecipe& loaded = checked.loaded;
  config::Diagnostics diagnostics;
  config::LocatedProblems problems(loaded.document.root, "parallel", diagnostics);
  check_ranks(loaded.options.parallel, &checked.counts.stages, world, problems);
  check_nodes(loaded.options.parallel, world, problems);
  config::LocatedProblems train_problems(loaded.document.root, "train", diagnostics);
  check_chunks(loaded.options, checked.counts.stages, world, train_problems);
  diagnostics.throw_if_any(ExitCode::kTopology);
}

std::vector<std::string> recipe_notes(const CheckedRecipe& checked) {
  std::vector<std::string> notes;
  const auto& type = static_cast<const config::StructType&>(config::type_of<Recipe>());
  collect_notes(config::to_node(type, &checked.loaded.options), "", notes);
  std::map<std::string, std::vector<std::string>> stages_of_note;
  for (const MoeStageInfo& stage : checked.counts.stages) {
    if (!stage.note.empty()) stages_of_note[stage.note].push_back(stage.name);
  }
  for (const auto& [note, stages] : stages_of_note) {
    notes.push_back(join_words(stages) + ": " + note);
  }
  return notes;
}

}  // namespace shoal
