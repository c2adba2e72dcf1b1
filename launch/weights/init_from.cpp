#include "launch/weights/init_from.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "launch/data/recipe_source.h"
#include "launch/model/model_weights.h"
#include "launch/recipe/resume_rules.h"
#include "launch/runs/run_folder.h"
#include "launch/weights/load_weights.h"
#include "launch/weights/upcycle.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "parallel/checkpoint/state_list.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/text.h"
#include "sparse/sparse_model.h"

namespace shoal {
namespace {

// What names of the state of sparse training begin with.
constexpr const char* kSparsity = "sparsity.";
constexpr size_t kMostListed = 20;

/// By the first entry of `rename` that fits, which is taken out of `unused`.
std::string renamed(const std::string& name, const config::TextMap& rename,
                    std::set<std::string>& unused) {
  for (const auto& [before, after] : rename) {
    if (!name.starts_with(before)) continue;
    unused.erase(before);
    return after + name.substr(before.size());
  }
  return name;
}

void require_none(const std::set<std::string>& unmatched, const std::string& mistake) {
  if (unmatched.empty()) return;
  throw Error(ExitCode::kMismatch,
              fmt::format("model.init_from.{} '{}'", mistake, *unmatched.begin()),
              "`shoal inspect CKPT --tensors` lists their names");
}

/// This rank's weights, unit by unit: those of the checkpoint, by its names, and names of the rest.
struct Found {
  ModelWeights taken;
  SourceOf source_of;  ///< of those taken
  std::vector<std::string> taken_names, missing;
};

Found find_weights(const BuiltModel& model, const SourceOf& source_of) {
  Found found;
  ModelWeights all = weights_of(model);
  all.sparse = {};
  for (const auto& [entry, value] : list_state(all).tensors) {
    const auto source = source_of.find(entry.name);
    if (source == source_of.end()) {
      found.missing.push_back(entry.name);
    } else {
      found.taken.list.push_back({source->second, value, 0, {}, {}});
      found.taken_names.push_back(source->second);
      found.source_of.insert(*source);
    }
  }
  return found;
}

std::string list_some(std::vector<std::string> names) {
  const size_t left_out = names.size() - std::min(names.size(), kMostListed);
  names.resize(names.size() - left_out);
  return join_words(names) + (left_out > 0 ? fmt::format(" and {} more", left_out) : "");
}

/// The path (MoeStage::path) of the layer of an expert's tensor; "" for other tensors.
std::string layer_of_expert(std::string_view name) {
  constexpr std::string_view kBackbone = "backbone.";
  const size_t end = name.find(".experts.");
  if (end == name.npos) return "";
  const size_t begin = name.starts_with(kBackbone) ? kBackbone.size() : 0;
  return std::string(name.substr(begin, end - begin));
}

/// Throws Error (exit 12) if experts of a router that assigns_by_seed get another run.seed or path.
void require_own_tokens(const Manifest& manifest, const Recipe& recipe, const BuiltModel& model,
                        const SourceOf& source_of) {
  const std::set<std::string> layers = seeded_layers(model);
  if (layers.empty()) return;
  const Recipe own = stored_recipe(manifest);
  const std::set<std::string> layers_before =
      seeded_layers(build_model(own, make_source(own)->shape()));
  const bool is_other_seed = own.run.seed != recipe.run.seed;
  for (const auto& [name, name_before] : source_of) {
    const std::string layer = layer_of_expert(name), source = layer_of_expert(name_before);
    if (!layers.contains(layer) || !layers_before.contains(source)) continue;
    if (!is_other_seed && source == layer) continue;
    if (is_other_seed) {
      throw Error(ExitCode::kMismatch,
                  fmt::format("model.init_from: the experts of {} were trained with run.seed {}; "
                              "with {} their router would give them other tokens",
                              source, own.run.seed, recipe.run.seed),
                  fmt::format("set run.seed={}", own.run.seed));
    }
    throw Error(ExitCode::kMismatch,
                fmt::format("model.init_from: the experts of {} cannot become those of {}: their "
                            "router assigns tokens by the layer's name",
                            source, layer),
                "take these experts without renaming them");
  }
}

/// With masks; empty without sparse layers.
SparseState sparse_state(const BuiltModel& model) {
  return model.sparse == nullptr ? SparseState() : model.sparse->state();
}

/// Fills the weights that `source_of` names, with their permutations and masks, and returns a line
/// for the log: how many were taken, and which of the model's keep their random values. Collective.
/// Throws Error (exit 12) if none was taken, or as taken_state and load_checkpoint.
std::string load_some_weights(const std::string& checkpoint, const SourceOf& source_of,
                              const BuiltModel& model, Communicator& world, bool raw_weights) {
  Found found = find_weights(model, source_of);
  const std::vector<std::string> taken = gather_lines(world, found.taken_names);
  const std::vector<std::string> random = gather_lines(world, found.missing);
  if (taken.empty()) {
    throw Error(ExitCode::kMismatch,
                fmt::format("model.init_from: no weight of '{}' has a place in the model, which "
                            "wants {}",
                            checkpoint, list_some(random)),
                "look at the names of both and at model.init_from.rename");
  }
  const Manifest manifest = read_manifest(checkpoint, world);
  SparseState sparse;
  on_every_rank(world, [&] {
    sparse = taken_state(sparse_state(model), found.source_of, manifest, checkpoint);
    require_whole_stacks(sparse, random);
    std::ranges::move(by_source_names(sparse, found.source_of, manifest),
                      std::back_inserter(found.taken.list));
  });
  load_tensors(checkpoint, manifest, std::move(found.taken), world, raw_weights);
  on_every_rank(world, [&] { sparse.tensors_loaded(); });
  std::string report = fmt::format(": {} taken", counted(std::ssize(taken), "weight"));
  if (!random.empty()) {
    report += fmt::format(", {} with random values: {}", counted(std::ssize(random), "weight"),
                          list_some(random));
  }
  return report;
}

}  // namespace

std::string initial_checkpoint(const InitFrom& init_from) {
  require_path(init_from.from);
  return resolve_checkpoint(init_from.from);
}

SourceOf chosen_names(const Manifest& manifest, const InitFrom& init_from) {
  SourceOf source_of;
  std::set<std::string> unmatched(init_from.take.begin(), init_from.take.end());
  std::set<std::string> unused;
  for (const auto& [before, after] : init_from.rename) unused.insert(before);
  for (const ManifestTensor& tensor : manifest.tensors) {
    const std::string& name = tensor.name;
    if (name.starts_with("optimizer.") || name.starts_with(WeightAverage::kPrefix)) continue;
    if (name.starts_with(kSparsity)) continue;  // permutations go with their weights
    bool is_taken = init_from.take.empty();
    for (const std::string& pattern : init_from.take) {
      if (!matches_glob(name, pattern)) continue;
      is_taken = true;
      unmatched.erase(pattern);
    }
    if (!is_taken) continue;
    const auto [same, is_new] = source_of.emplace(renamed(name, init_from.rename, unused), name);
    if (is_new) continue;
    throw Error(ExitCode::kMismatch,
                fmt::format("model.init_from.rename: '{}' and '{}' of the checkpoint would both be "
                            "'{}'",
                            same->second, name, same->first),
                "take one of the two only");
  }
  require_none(unmatched, "take: no tensor of the checkpoint is called");
  require_none(unused, "rename: no tensor taken has a name that begins with");
  return source_of;
}

std::string describe_other_function(const Manifest& manifest, const Recipe& recipe,
                                    const BuiltModel& model, Communicator& world,
                                    const InitFrom& taken) {
  const SourceOf source_of = chosen_names(manifest, taken);
  std::set<std::string> unused;
  for (const auto& [name, source] : source_of) unused.insert(source);
  for (const std::string& name : gather_lines(world, find_weights(model, source_of).taken_names)) {
    unused.erase(name);
  }
  const std::string keys = describe(evaluated_differences(stored_recipe(manifest), recipe));
  if (unused.empty()) return keys;
  return fmt::format("{}\n  {} of the checkpoint without a place in the model: {}", keys,
                     counted(std::ssize(unused), "tensor"),
                     list_some({unused.begin(), unused.end()}));
}

std::string load_initial_weights(const BuiltModel& model, const Recipe& recipe,
                                 const std::string& tokenizer, Communicator& world) {
  if (!recipe.model.init_from) return "";
  const InitFrom& init_from = *recipe.model.init_from;
  // As rank 0 sees it: a run that is being trained may commit another one meanwhile.
  const std::string path = on_rank_zero(world, [&] { return initial_checkpoint(init_from); });
  const Manifest manifest = read_manifest(path, world);
  const bool is_averaged = has_averages(manifest) && !init_from.raw_weights;
  std::string source = path + (is_averaged ? " (averaged weights)" : "");
  if (recipe.model.upcycle) {
    const bool has_masks = std::ranges::any_of(manifest.tensors, [](const auto& tensor) {
      return tensor.name.starts_with(SparseLayer::kMaskPrefix);
    });
    if (model.sparse != nullptr && has_masks) {
      throw Error(ExitCode::kMismatch,
                  path + " is sparse, and model.upcycle makes no experts' masks of an MLP's",
                  "upcycle a dense checkpoint, or leave out sparsity");
    }
    require_own_tokenizer(manifest, tokenizer);
    load_upcycled(path, model, world, init_from.raw_weights);
    require_same_model(evaluated_differences(stored_recipe(manifest), recipe));
    return source;
  }
  const SourceOf source_of = chosen_names(manifest, init_from);
  require_own_tokens(manifest, recipe, model, source_of);
  if (init_from.is_partial()) {
    source += load_some_weights(path, source_of, model, world, init_from.raw_weights);
  } else {
    require_own_tokenizer(manifest, tokenizer);
    ModelWeights weights = weights_of(model);
    weights.sparse = sparse_state(model);
    load_weights(path, std::move(weights), world, init_from.raw_weights);
  }
  if (model.sparse) on_every_rank(world, [&] { model.sparse->require_masks_fit(); });
  const std::string other = describe_other_function(manifest, recipe, model, world, init_from);
  return source + (other.empty() ? "" : "; the model differs from the one they were trained in:") +
         other;
}

}  // namespace shoal
