#include "launch/weights/open_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <utility>

#include "launch/job/rank_devices.h"
#include "launch/job/rank_facts.h"
#include "launch/machine/break_even_file.h"
#include "launch/model/model_weights.h"
#include "launch/recipe/other_data.h"
#include "launch/runs/run_folder.h"
#include "launch/weights/init_from.h"
#include "launch/weights/load_weights.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/text.h"
#include "runtime/data/class_options.h"
#include "runtime/files/data_file.h"
#include "sparse/sparse_model.h"

namespace shoal {
namespace {

using VisitPath = std::function<void(const std::string& key, std::string& path)>;

/// Visits the texts that name files or folders, other than items of lists.
void visit_paths(const config::Type& type, void* object, const std::string& key, bool is_path,
                 const VisitPath& visit) {
  using config::Kind;
  if (type.kind == Kind::kText && is_path) return visit(key, *static_cast<std::string*>(object));
  if (type.kind == Kind::kOptional && type.size(object) > 0) {
    return visit_paths(type.element(), const_cast<void*>(type.at(object, 0)), key, is_path, visit);
  }
  if (type.kind == Kind::kChoice) {
    auto& choice = const_cast<config::ChoiceValue&>(type.choice(object));
    if (choice.is_empty()) return;
    return visit_paths(choice.member()->options_type(), choice.erased_options(), key, false, visit);
  }
  for (const config::FieldInfo& field : type.fields) {
    visit_paths(field.type(), field.member(object),
                field.rules.is_inlined ? key : config::join_path(key, field.name),
                field.rules.is_path, visit);
  }
}

/// Looks for the files that relative paths of the recipe name, but paths of the command line, also
/// in `started_in`, where the training was started: a path that leads somewhere from there alone
/// becomes absolute. Returns a line for the user on each path without a file in the working
/// directory.
std::vector<std::string> find_paths(LoadedRecipe& loaded, const std::string& started_in) {
  std::vector<std::string> lines;
  const std::string here = working_directory();
  if (started_in.empty() || started_in == here) return lines;
  std::map<std::string, std::string> found;  // sets share paths with `data`
  const auto find_in = [&](const std::string& section, const config::Type& type, void* object) {
    visit_paths(type, object, "", false, [&](const std::string& inner, std::string& path) {
      const bool is_in_data_path = inner.starts_with("train.") || inner.starts_with("valid.");
      if (is_in_data_path || path.starts_with('/') || data_file_exists(path)) return;
      const std::string key = config::join_path(section, inner), there = started_in + "/" + path;
      if (const auto shared = found.find(path); shared != found.end()) path = shared->second;
      const config::Position given = config::find_position(loaded.document.root, key);
      const bool is_typed = given.source && given.source->is_command_line;
      if (is_typed || path.starts_with('/')) return;
      const bool is_found = data_file_exists(there);
      lines.push_back(fmt::format(
          "{}: '{}' is not in the working directory {}, {} {}, where the run was started", key,
          path, here, is_found ? "but in" : "nor in", started_in));
      if (!is_found) return;
      found[path] = there;
      path = there;
    });
  };
  Recipe& recipe = loaded.options;
  find_in("data", config::type_of<DataOptions>(), &recipe.data);
  for (auto& [name, data] : recipe.evaluate.sets) {
    find_in("evaluate.sets." + name, config::type_of<DataOptions>(), &data);
  }
  find_in("model", config::type_of<Choice<Backbone>>(), &recipe.model.backbone);
  return lines;
}

/// Calls `read`; the error of a damaged checkpoint then names an older one.
template <class Read>
auto read_checkpoint(const std::string& path, const Read& read) try {
  return read();
} catch (const CheckpointError& error) {
  throw naming_older(error, path);
}

/// Refuses the classes of the checkpoint's head in another order than the head has them.
void require_own_classes(Choice<DataSource>& own, Choice<DataSource>& given) {
  const ClassOptions *trained = class_options_of(own), *now = class_options_of(given);
  if (trained == nullptr || now == nullptr || trained->class_names == now->class_names) return;
  if (!std::ranges::is_permutation(trained->class_names, now->class_names)) return;
  throw ConfigError(
      "data.class_names: the model was trained with these classes in another order; leave "
      "data.class_names out");
}

/// All but the grid. Collective.
OpenedCheckpoint open_recipe(const CheckpointChoice& choice, const Environment& environment,
                             Communicator& guard) {
  OpenedCheckpoint opened;
  // As rank 0 sees it: a run that is being trained may commit another one meanwhile.
  opened.path = on_rank_zero(guard, [&] { return choose_checkpoint(choice); });
  opened.manifest = read_manifest(opened.path, guard);
  const Recipe stored = stored_recipe(opened.manifest);
  Recipe own = stored;
  // Which numbers imported weights were trained with, a stand-in for their data does not tell.
  const bool is_unknown =
      fix_normalisation(own.data) && opened.manifest.written_by.contains(kImportedAs);
  ChangedRecipe changed =
      read_changed(is_unknown ? stored : own,
                   {opened.path + "/manifest.json (its recipe)", choice.overrides, environment});
  for (const std::string& line :
       find_paths(changed.loaded, opened.manifest.written_by[kStartedIn])) {
    if (guard.rank() == 0) std::cerr << "note: " << line << "\n";
  }
  opened.recipe = std::move(changed.loaded.options);
  require_own_classes(own.data.source, opened.recipe.data.source);
  if (guard.rank() == 0 && opened.recipe.data.source.name() != own.data.source.name()) {
    std::cerr << fmt::format("note: data.source={} keeps of the checkpoint's data: {}\n",
                             opened.recipe.data.source.name(),
                             changed.kept.empty() ? "nothing" : join_words(changed.kept));
  }
  DataOptions data = opened.recipe.data;
  if (guard.rank() == 0 && is_unknown && fix_normalisation(data)) {
    std::cerr << "warning: imported weights do not tell data.normalise; set it\n";
  }
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

CheckpointReader open_reader(const CheckpointChoice& choice) {
  const std::string path = choose_checkpoint(choice);
  return read_checkpoint(path, [&] { return CheckpointReader(path); });
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
  read_checkpoint(opened.path, [&] {
    load_weights(opened.path, weights_to_run(model, opened.break_evens), world, opened.raw_weights);
  });
  const std::string other = describe_other_function(opened.manifest, opened.recipe, model, world);
  if (!other.empty()) {
    const std::string what = "the model differs from the one the weights were trained in:" + other;
    if (!opened.override_model) {
      throw Error(ExitCode::kMismatch, what,
                  "leave these keys as the checkpoint has them, or accept this with --override");
    }
    if (world.rank() == 0) std::cerr << "warning: " << what << std::endl;
  }
  return model.sparse == nullptr ? 0 : model.sparse->masks().run_by_kernels();
}

}  // namespace shoal
