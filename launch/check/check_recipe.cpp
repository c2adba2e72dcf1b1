#include "launch/check/check_recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "launch/data/recipe_source.h"
#include "launch/model/model_weights.h"
#include "launch/step/session.h"
#include "launch/weights/upcycle.h"
#include "moe/exchange/row_exchange.h"
#include "parallel/checkpoint/state_list.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/base/integers.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

/// Elements of this parameter in units that one token is not routed to.
int64_t idle_elements(const Parameter& parameter, const BuiltModel& model) {
  const std::shared_ptr<MoeStage> owner = stage_of(parameter, model);
  if (owner == nullptr) return 0;
  const MoeStageInfo stage = owner->info();
  return parameter.tensor.numel() / stage.num_units * (stage.num_units - stage.units_per_token);
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
  for (const auto& stage : model.stages) counts.stages.push_back(stage->info());
  counts.has_learned_gates = std::ranges::any_of(model.gates, &TokenGateImpl::is_learned);
  for (const Parameter& parameter : model.parameters) {
    counts.parameters += parameter.tensor.numel();
    counts.active_parameters += parameter.tensor.numel() - idle_elements(parameter, model);
  }
  counts.parameters_headless = counts.parameters - model.task->head_parameters();
  counts.views = model.task->views();
  counts.compares_samples = model.task->compares_samples();
  counts.mixes_samples = model.task->mixes_samples();
  return counts;
}

/// Adds both moments, named alike, of the tensors whose names begin with `prefix`.
void add_moments(const std::string& moment_prefix, const std::string& prefix,
                 std::vector<SafetensorsEntry>& entries) {
  const size_t count = entries.size();
  for (size_t i = 0; i < count; ++i) {
    if (!entries[i].name.starts_with(prefix)) continue;
    SafetensorsEntry moment = entries[i];
    moment.name = moment_prefix + moment.name.substr(prefix.size());
    entries.insert(entries.end(), 2, moment);
  }
}

/// Weights, their averages, masks and optimizer state, which is nearly all of a checkpoint.
CheckpointSize estimate(const BuiltModel& model, const Recipe& recipe, Optimizer& optimizer,
                        int64_t ranks) {
  std::vector<SafetensorsEntry> entries;
  const auto add = [&entries](Stateful& state) {
    std::ranges::move(list_state(state).entries(), std::back_inserter(entries));
  };
  ModelWeights weights = weights_of(model);
  add(weights);
  add_moments(LearnPermutations::kMomentPrefix, Permutation::kSoftPrefix, entries);
  add_moments(ChooseCells::kMomentPrefix, SoftCells::kScorePrefix, entries);
  add(optimizer);
  if (recipe.train.average) {
    WeightAverage average(*recipe.train.average, model.parameters);
    add(average);
  }
  if (recipe.sparsity) {
    PruneGrow prune_grow(make_sparse_layers(*recipe.sparsity, model), nullptr, 0, false);
    add(prune_grow);
  }
  return estimate_checkpoint(entries, ranks);
}

void check_checkpoint(const CheckpointSize& size, Problems& problems) {
  if (size.manifest_bytes <= kLargestManifest) return;
  problems.add("model", fmt::format("a checkpoint of so many tensors takes a manifest of up to {} "
                                    "MiB, at most {} MiB can be read back; use fewer units",
                                    size.manifest_bytes >> 20, kLargestManifest >> 20));
}

/// Nothing if the model cannot be built. `source`: null if it has mistakes; `found`: by reading.
std::optional<ModelCounts> check_model(const Recipe& recipe, const DataSource* source,
                                       int64_t ranks, const config::Diagnostics& found,
                                       Problems& problems) {
  std::optional<ModelCounts> counts;
  // train.precision is read too, but no rule depends on it.
  if (source == nullptr || found.has_mistake_in("model") || found.has_mistake_in("task")) {
    return counts;
  }
  const auto rule = [&] {
    Recipe known = recipe;
    if (found.has_mistake_in("sparsity")) known.sparsity.reset();
    const BuiltModel model = build_model(known, source->shape(), nullptr, torch::kMeta);
    counts = count(model);
    if (recipe.model.upcycle) apply([&] { check_upcycling(model); }, problems);
    if (known.sparsity) apply([&] { counts->sparse = describe_sparse(recipe, model); }, problems);
    if (counts->sparse.empty()) known.sparsity.reset();
    counts->work = work_of(model, counts->sparse);
    if (!found.has_mistake_in("optimizer")) {
      const auto optimizer =
          Registry<Optimizer>::create(recipe.optimizer, {model.parameters, nullptr, model.buffers});
      counts->counts_entry_steps = optimizer->counts_entry_steps();
      counts->checkpoint = estimate(model, known, *optimizer, ranks);
      check_checkpoint(counts->checkpoint, problems);
    }
  };
  apply(rule, problems);
  return counts;
}

/// Layers that are soft until then would stay so.
void check_ends(const Recipe& recipe, const StepScale& scale, Problems& problems) {
  constexpr const char* kBehind = "lies behind the end of the training, layers would stay soft";
  const auto choice_ends = [&](const StepScale& known) {
    const auto rule = Registry<GrowRule>::create(recipe.sparsity->rule, {known});
    return rule->soft_choice() != nullptr ? rule->soft_choice()->until : 0;
  };
  if (is_behind_end(recipe, scale, choice_ends)) problems.add("sparsity.rule.until", kBehind);
  const auto learning_ends = [&](const StepScale& known) {
    const auto method = Registry<PermutationMethod>::create(recipe.sparsity->permutation, {});
    return method->learning() != nullptr ? LearningSteps(*method->learning(), known).until : 0;
  };
  if (is_behind_end(recipe, scale, learning_ends)) {
    problems.add("sparsity.permutation.until", kBehind);
  }
}

/// `source`: null if it has mistakes, then durations in tokens are taken to be right.
void check_durations(const Recipe& recipe, const DataSource* source, Problems& problems) {
  // Whether a duration can be counted is independent of how long an epoch or the training is. One
  // that could not be read keeps its default; the training's, which has none, counts as a step.
  StepScale scale{.samples_per_epoch = 1,
                  .samples_per_step = 1,
                  .tokens_per_sample = source != nullptr ? source->shape().sequence : 1};
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
  if (!recipe.sparsity) return;
  try {
    Registry<GrowRule>::create(recipe.sparsity->rule, {scale});
  } catch (const ConfigError& error) {
    problems.add("sparsity.rule", error.what());
  }
  try {
    const auto method = Registry<PermutationMethod>::create(recipe.sparsity->permutation, {});
    if (method->learning() != nullptr) LearningSteps(*method->learning(), scale);
  } catch (const ConfigError& error) {
    problems.add("sparsity.permutation", error.what());
  }
  try {
    check_ends(recipe, scale, problems);
  } catch (const ConfigError&) {
    // A duration that cannot be counted is reported above.
  }
}

/// `num_views`: nothing if the model has mistakes.
void check_data_rules(const LoadedRecipe& loaded, const DataSource& source,
                      std::optional<int64_t> num_views, config::Diagnostics& diagnostics) {
  config::LocatedProblems problems(loaded.document.root, "", diagnostics);
  config::LocatedProblems source_problems(loaded.document.root, "data", diagnostics);
  source.check_training(source_problems);
  const auto transforms_fit = [&] {
    const std::optional<ImageTransform> images = source.image_transform();
    if (images && num_views) require_views(images->augment.transforms, *num_views);
  };
  apply(transforms_fit, problems);
  apply([&] { check_stride(loaded.options, source); }, problems);
}

void check_comparison(const Recipe& recipe, const ModelCounts& counts, Problems& problems) {
  if (!counts.compares_samples) return;
  if (recipe.train.batch == 1) {
    problems.add("train.batch", fmt::format("the loss of task {} compares the samples of a step "
                                            "with each other, and there is 1; raise it",
                                            recipe.task.name()));
  }
  if (recipe.train.accumulate == 1) return;
  problems.add("train.accumulate",
               fmt::format("the loss of task {} compares all samples of a step with each other, "
                           "those of {} micro-steps would not be; set 1",
                           recipe.task.name(), recipe.train.accumulate));
}

void check_mix(const Recipe& recipe, const ModelCounts& counts, Problems& problems) {
  if (!counts.mixes_samples || recipe.train.group > 1) return;
  problems.add("task.mix",
               "images are mixed within routing groups, and train.group is 1; raise it");
}

/// Names of the stages of each number of units.
using StagesOfCount = std::map<int64_t, std::vector<std::string>>;

/// Whether so many expert ranks can share units of these counts.
bool can_share(const StagesOfCount& stages, int64_t ranks, bool must_divide) {
  return std::all_of(stages.begin(), stages.end(), [&](const auto& entry) {
    return entry.first >= ranks && (!must_divide || entry.first % ranks == 0);
  });
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

/// What a recipe asks of the ranks.
struct RankRules {
  const ParallelOptions& parallel;
  bool knows_stages = false;  ///< false if the model has mistakes
  std::optional<int64_t> known_world;
  int64_t world = 1;  ///< by default expert_ranks
  StagesOfCount stages;

  /// Without a logged load by_load places as contiguous does.
  bool must_divide() const {
    return !parallel.uneven && parallel.placement != PlacementRule::kByCost;
  }
  /// "valid expert_ranks for 4 ranks: 1, 2, 4".
  std::string choices() const {
    std::vector<int64_t> valid = divisors(world);
    std::erase_if(valid, [&](int64_t ranks) { return !can_share(stages, ranks, must_divide()); });
    return fmt::format("{}: {}",
                       knows_stages ? "valid expert_ranks for " + counted(world, "rank")
                                    : "divisors of " + std::to_string(world),
                       fmt::join(valid, ", "));
  }
  /// "; or start 2 or 4 ranks", where the stages could be shared then.
  std::string other_worlds() const {
    const int64_t ranks = parallel.expert_ranks;
    if (!knows_stages || !can_share(stages, ranks, must_divide())) return "";
    const int64_t above = (world / ranks + 1) * ranks;
    return world > ranks ? fmt::format("; or start {} or {} ranks", above - ranks, above)
                         : fmt::format("; or start {} ranks", ranks);
  }
};

/// The rule of topology, with what would satisfy it.
void check_grid(const RankRules& rules, Problems& problems) {
  const ParallelOptions& parallel = rules.parallel;
  for (const auto& [key, what] : topology_problems(rules.known_world, parallel.expert_ranks,
                                                   parallel.ranks_per_node.value_or(0))) {
    std::string hint;
    if (key == "expert_ranks") {
      hint = "; " + rules.choices() + rules.other_worlds();
    } else if (rules.known_world && rules.world % *parallel.ranks_per_node != 0) {
      hint =
          fmt::format("; divisors of {}: {}", rules.world, fmt::join(divisors(rules.world), ", "));
    }
    problems.add(key, what + hint);
  }
}

/// Each expert rank has a unit of each stage, and equally many unless the recipe allows otherwise.
void check_units_of_ranks(const RankRules& rules, Problems& problems) {
  const int64_t ranks = rules.parallel.expert_ranks;
  for (const auto& [num_units, names] : rules.stages) {
    if (num_units < ranks) {
      problems.add(
          "expert_ranks",
          fmt::format("{} of {} cannot be spread over {} expert ranks, some would hold "
                      "none; {}",
                      counted(num_units, "unit"), join_words(names), ranks, rules.choices()));
    } else if (rules.must_divide() && num_units % ranks != 0) {
      problems.add("expert_ranks",
                   fmt::format("the units of {} do not divide evenly: {}; {}; or "
                               "parallel.uneven=true",
                               join_words(names), quotient(num_units, ranks), rules.choices()));
    }
  }
}

/// All of the above. `stages`: null if the model has mistakes; `world`: nothing if it is unknown;
/// `knows_train`: whether the section can be read.
void check_ranks(const LoadedRecipe& loaded, const std::vector<MoeStageInfo>* stages,
                 std::optional<int64_t> world, bool knows_train, config::Diagnostics& diagnostics) {
  config::LocatedProblems problems(loaded.document.root, "parallel", diagnostics);
  const ParallelOptions& parallel = loaded.options.parallel;
  RankRules rules{parallel, stages != nullptr, world, world.value_or(parallel.expert_ranks), {}};
  if (stages != nullptr) {
    for (const MoeStageInfo& stage : *stages) rules.stages[stage.num_units].push_back(stage.name);
  }
  check_grid(rules, problems);
  check_units_of_ranks(rules, problems);
  if (stages == nullptr || !knows_train) return;
  config::LocatedProblems train_problems(loaded.document.root, "train", diagnostics);
  check_chunks(loaded.options, *stages, rules.world, train_problems);
}

}  // namespace

bool is_behind_end(const Recipe& recipe, StepScale scale,
                   const std::function<int64_t(const StepScale&)>& place) {
  if (scale.total_steps > 0) return place(scale) > scale.total_steps;
  scale.samples_per_step = recipe.train.batch;
  for (const int64_t samples_per_epoch : {recipe.train.batch, int64_t{1} << 32}) {
    scale.samples_per_epoch = samples_per_epoch;
    scale.total_steps = 0;
    scale.total_steps = to_steps(recipe.train.duration, scale);
    if (place(scale) <= scale.total_steps) return false;
  }
  return true;
}

CheckedRecipe check_recipe(const config::RecipeSource& source, config::UnsetVariable unset,
                           std::optional<int64_t> world) {
  config::Diagnostics diagnostics;
  CheckedRecipe checked{config::read_options<Recipe>(source, unset, diagnostics), nullptr, {}};
  const LoadedRecipe& loaded = checked.loaded;
  // Only what reading found makes a section unfit for further rules, not what they find.
  const config::Diagnostics found = diagnostics;
  config::LocatedProblems problems(loaded.document.root, "", diagnostics);
  if (!found.has_mistake_in("data"))
    checked.source = make_source(loaded.options, source.environment);
  const DataSource* data = checked.source.get();
  std::optional<ModelCounts> counts = check_model(
      loaded.options, data, world.value_or(loaded.options.parallel.expert_ranks), found, problems);
  check_durations(loaded.options, data, problems);
  if (data != nullptr) {
    const auto num_views = counts ? std::optional(counts->views) : std::nullopt;
    check_data_rules(loaded, *data, num_views, diagnostics);
  }
  if (counts && !found.has_mistake_in("train")) {
    check_comparison(loaded.options, *counts, problems);
    check_mix(loaded.options, *counts, problems);
  }
  const ExitCode code = diagnostics.size() == 0 ? ExitCode::kTopology : ExitCode::kRecipe;
  if (!found.has_mistake_in("parallel")) {
    check_ranks(loaded, counts ? &counts->stages : nullptr, world, !found.has_mistake_in("train"),
                diagnostics);
  }
  diagnostics.throw_if_any(code);
  checked.counts = std::move(counts).value();
  return checked;
}

void check_topology(const CheckedRecipe& checked, int64_t world) {
  config::Diagnostics diagnostics;
  check_ranks(checked.loaded, &checked.counts.stages, world, /*knows_train=*/true, diagnostics);
  diagnostics.throw_if_any(ExitCode::kTopology);
}

}  // namespace shoal
