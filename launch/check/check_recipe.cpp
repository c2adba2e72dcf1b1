#include "launch/check/check_recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "launch/check/topology.h"
#include "launch/model/model_weights.h"
#include "launch/model/score_rule.h"
#include "launch/recipe/other_data.h"
#include "launch/step/session.h"
#include "launch/weights/upcycle.h"
#include "parallel/checkpoint/state_list.h"
#include "sparse/sparse_model.h"

namespace shoal {
namespace {

/// The elements of the units of this parameter's stage that one token is not routed to.
int64_t idle_elements(const Parameter& parameter, const BuiltModel& model) {
  const std::shared_ptr<MoeStage> owner = stage_of(parameter, model);
  if (owner == nullptr) return 0;
  const MoeStageInfo stage = owner->info();
  return parameter.tensor.numel() / stage.num_units * (stage.num_units - stage.units_per_token);
}

/// Runs a rule and adds what it throws, lines of `PATH: what`.
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

ModelCounts count(const BuiltModel& model, bool has_head) {
  ModelCounts counts;
  for (const auto& stage : model.stages) counts.stages.push_back(stage->info());
  for (const auto& backbone : backbones_of(*model.task)) {
    std::ranges::move(backbone->notes_on_accumulation(),
                      std::back_inserter(counts.notes_on_accumulation));
  }
  for (const Parameter& parameter : model.parameters) {
    counts.parameters += parameter.tensor.numel();
    counts.active_parameters += parameter.tensor.numel() - idle_elements(parameter, model);
  }
  const int64_t head = model.task->head_parameters();
  counts.parameters_headless = counts.parameters - head;
  if (has_head) return counts;
  counts.lacks_head = head > 0;
  counts.parameters -= head;
  counts.active_parameters -= head;
  return counts;
}

/// The size of weights, their averages, masks and optimizer state: nearly all of a checkpoint.
CheckpointSize estimate(const BuiltModel& model, const Recipe& recipe, Optimizer& optimizer,
                        int64_t ranks) {
  std::vector<SafetensorsEntry> entries;
  const auto add = [&entries](Stateful& state) {
    std::ranges::move(list_state(state).entries(), std::back_inserter(entries));
  };
  ModelWeights weights = weights_of(model);
  add(weights);
  std::ranges::move(SparseModel::moments_of(entries), std::back_inserter(entries));
  add(optimizer);
  if (recipe.train.average) {
    WeightAverage average(*recipe.train.average, model.parameters);
    add(average);
  }
  if (recipe.sparsity) {
    SparseMasks& masks = model.sparse->masks();
    masks.fit_to([](const std::string&) { return true; });
    add(masks);
  }
  return estimate_checkpoint(entries, ranks);
}

void check_checkpoint(const CheckpointSize& size, Problems& problems) {
  if (size.manifest_bytes <= kLargestManifest) return;
  problems.add("model", fmt::format("a checkpoint of so many tensors takes a manifest of up to {} "
                                    "MiB, at most {} MiB can be read back; use fewer units",
                                    size.manifest_bytes >> 20, kLargestManifest >> 20));
}

/// Adds the model and its counts. Returns false if it cannot be built. `found`: by reading.
bool check_model(CheckedRecipe& checked, int64_t ranks, const config::Diagnostics& found,
                 Problems& problems) {
  // train.precision is read too, but no rule depends on it.
  if (checked.source == nullptr || found.has_mistake_in("model") || found.has_mistake_in("task")) {
    return false;
  }
  const Recipe& recipe = checked.loaded.options;
  const BuiltModel& model = checked.model;
  ModelCounts& counts = checked.counts;
  const auto rule = [&] {
    Recipe known = recipe;
    if (found.has_mistake_in("sparsity")) known.sparsity.reset();
    const DataShape data = checked.source->shape();
    checked.model = build_model(known, data);
    counts = count(model, !data.has_unknown_classes);
    if (recipe.model.upcycle) apply([&] { check_upcycling(model); }, problems);
    if (model.sparse) apply([&] { counts.sparse = model.sparse->describe(); }, problems);
    if (counts.sparse.empty()) known.sparsity.reset();
    counts.work = work_of(model, counts.sparse);
    if (!found.has_mistake_in("optimizer")) {
      const auto optimizer =
          Registry<Optimizer>::create(recipe.optimizer, {model.parameters, nullptr, model.buffers});
      counts.state_kinds = optimizer->state_kinds();
      counts.step_count_kinds = optimizer->step_count_kinds();
      counts.checkpoint = estimate(model, known, *optimizer, ranks);
      check_checkpoint(counts.checkpoint, problems);
    }
  };
  apply(rule, problems);
  return model.task != nullptr;
}

/// Adds a problem for layers that are still soft at the end of the training.
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
  const auto apply_at = [&problems](const char* path, const auto& rule) {
    try {
      rule();
    } catch (const ConfigError& error) {
      problems.add(path, error.what());
    }
  };
  const auto count_steps = [&](const char* path, const std::optional<Duration>& duration) {
    int64_t steps = 1;
    if (duration && !duration->is_time()) {
      apply_at(path, [&] { steps = to_steps(*duration, scale); });
    }
    return steps;
  };
  scale.total_steps = std::max<int64_t>(1, count_steps("train.duration", recipe.train.duration));
  count_steps("train.log_every", recipe.train.log_every);
  count_steps("run.log_layers", recipe.run.log_layers);
  count_steps("evaluate.every", recipe.evaluate.every);
  count_steps("checkpoint.every", recipe.checkpoint.every);
  if (recipe.train.patience && !recipe.evaluate.every) {
    problems.add("train.patience",
                 "counts evaluations, and evaluate.every is never; name how often");
  }
  apply_at("schedule", [&] { Registry<Schedule>::create(recipe.schedule, scale); });
  if (!recipe.sparsity) return;
  apply_at("sparsity.rule", [&] { Registry<GrowRule>::create(recipe.sparsity->rule, {scale}); });
  apply_at("sparsity.permutation", [&] {
    const auto method = Registry<PermutationMethod>::create(recipe.sparsity->permutation, {});
    if (method->learning() != nullptr) LearningSteps(*method->learning(), scale);
  });
  if (recipe.train.duration.count == 0) return;  // the default of a duration with a mistake
  try {
    check_ends(recipe, {.tokens_per_sample = scale.tokens_per_sample}, problems);
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

/// Adds problems of `train` with a task that mixes or compares the samples of a step.
void check_samples_of_step(const Recipe& recipe, const Task& task, Problems& problems) {
  if (task.mixes_samples() && recipe.train.group == 1) {
    problems.add("task.mix",
                 "images are mixed within routing groups, and train.group is 1; raise it");
  }
  if (!task.compares_samples()) return;
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

}  // namespace

bool is_behind_end(const Recipe& recipe, StepScale scale,
                   const std::function<int64_t(const StepScale&)>& place) {
  if (scale.total_steps > 0) return place(scale) > scale.total_steps;
  if (recipe.train.duration.is_time()) return false;
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
  CheckedRecipe checked{
      config::read_options<Recipe>(source, unset, diagnostics), nullptr, {}, {}, {}};
  LoadedRecipe& loaded = checked.loaded;
  // Only what reading found makes a section unfit for further rules, not what they find.
  const config::Diagnostics found = diagnostics;
  config::LocatedProblems problems(loaded.document.root, "", diagnostics);
  if (!found.has_mistake_in("data")) {
    loaded.found = find_classes(loaded.options);
    fix_normalisation(loaded.options.data);
    checked.source = make_source(loaded.options, source.environment);
  }
  const DataSource* data = checked.source.get();
  std::optional<int64_t>& expert_ranks = checked.loaded.options.parallel.expert_ranks;
  const int64_t ranks = world.value_or(expert_ranks.value_or(1));
  const bool has_model = check_model(checked, ranks, found, problems);
  const std::vector<MoeStageInfo>& stages = checked.counts.stages;
  if (!expert_ranks) {
    expert_ranks = has_model ? choose_expert_ranks(loaded.options.parallel, stages, ranks) : 1;
  }
  check_durations(loaded.options, data, problems);
  if (data != nullptr) {
    const auto num_views = has_model ? std::optional(checked.model.task->views()) : std::nullopt;
    check_data_rules(loaded, *data, num_views, diagnostics);
    if (!found.has_mistake_in("evaluate")) {
      apply([&] { checked.sets = make_set_sources(loaded.options, *data, source.environment); },
            problems);
    }
  }
  if (has_model && !found.has_mistake_in("evaluate")) {
    apply([&] { score_rule(*checked.model.task, loaded.options.evaluate); }, problems);
  }
  if (has_model && !found.has_mistake_in("train")) {
    check_samples_of_step(loaded.options, *checked.model.task, problems);
  }
  const ExitCode code = diagnostics.size() == 0 ? ExitCode::kTopology : ExitCode::kRecipe;
  if (!found.has_mistake_in("parallel")) {
    check_ranks(loaded, has_model ? &stages : nullptr, world, !found.has_mistake_in("train"),
                diagnostics);
  }
  diagnostics.throw_if_any(code);
  return checked;
}

}  // namespace shoal
