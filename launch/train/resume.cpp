#include "launch/train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "launch/job/launch_info.h"
#include "launch/machine/break_even_file.h"
#include "launch/recipe/resume_rules.h"
#include "launch/train/courses.h"
#include "launch/weights/fit_sparse_state.h"
#include "launch/weights/taken_sparse_state.h"
#include "launch/weights/upcycle.h"
#include "moe/moe_layer.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "parallel/checkpoint/state_list.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/build_info.h"
#include "runtime/base/text.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/config_writer.h"

namespace shoal {
namespace {

// In a manifest's written_by: blank-separated recipe keys.
constexpr const char* kOverridden = "overridden";
// What names of the state of sparse training begin with.
constexpr const char* kSparsity = "sparsity.";
constexpr const char* kTokenizerHint =
    "its name, and the SHA-256 of what its files hold; set data.tokenizer to the one that the "
    "model was trained with, or put its files back";

std::vector<config::Difference> compare(const Manifest& checkpoint, const Recipe& recipe) {
  return differences_of(stored_recipe(checkpoint), recipe);
}

std::string new_run_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{}-{}-{}", host_name(), getpid(),
                     std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

std::map<std::string, std::string> provenance(const RankGrid& grid) {
  const BuildInfo& build = build_info();
  return {{"shoal", build.version + " " + build.git_revision},
          {"torch", build.torch_version},
          {"mpi", build.mpi},
          {"world", std::to_string(grid.world->size())},
          {"expert_ranks", std::to_string(grid.expert->size())}};
}

// Fixed keys that --override let differ, now or before.
std::string overridden_keys(const Manifest& manifest,
                            const std::vector<config::Difference>& differences) {
  std::set<std::string> keys;
  const auto before = manifest.written_by.find(kOverridden);
  if (before != manifest.written_by.end()) {
    std::istringstream words(before->second);
    for (std::string key; words >> key;) keys.insert(key);
  }
  for (const config::Difference& difference : differences) {
    if (role_of_key(difference.path) == KeyRole::kFixed) keys.insert(difference.path);
  }
  return fmt::format("{}", fmt::join(keys, " "));
}

const std::string* find_text(const Manifest& manifest, const char* name) {
  const ManifestValue* found = manifest.find_value(name);
  return found == nullptr ? nullptr : std::get_if<std::string>(&found->value);
}

/// "" if they agree, or one of the two is not known.
std::string tokenizer_mismatch(const Manifest& manifest, const std::string& identity) {
  const std::string* own = find_text(manifest, kDataTokenizer);
  if (own == nullptr || identity.empty() || *own == identity) return "";
  return fmt::format(
      "data.tokenizer: the checkpoint's token ids are those of another tokenizer:\n"
      "  checkpoint: {}\n  now:        {}",
      *own, identity);
}

void check_tokenizer(const Manifest& manifest, const Session& session,
                     const ResumeOptions& options) {
  const std::string what = tokenizer_mismatch(manifest, session.train_data().tokenizer);
  if (what.empty()) return;
  if (!options.override_fixed) {
    throw Error(ExitCode::kMismatch, what,
                std::string(kTokenizerHint) + ", or accept the difference with --override");
  }
  options.log.warn(what);
}

// The data that the checkpoint was trained on are those at hand, or --override allows others.
void check_data(const Manifest& manifest, const Session& session, const ResumeOptions& options) {
  const std::string* trained_on = find_text(manifest, kDataFingerprint);
  if (trained_on == nullptr || *trained_on == session.train_data().fingerprint) return;
  const std::string what = fmt::format(
      "the training data are not those of the checkpoint:\n  checkpoint: {}\n  now:        {}",
      *trained_on, session.train_data().fingerprint);
  if (!options.override_fixed) {
    throw Error(ExitCode::kMismatch, what,
                "name, size and a hash of sampled blocks of each file; put the files back, start a "
                "new run (another run.name), or accept the difference with --override");
  }
  options.log.warn(what);
}

// Gives `writer` what a resumed run hands on. False if the folder holds no checkpoint.
bool resume(Session& session, const Recipe& recipe, const ResumeOptions& options,
            CheckpointWriter::Options& writer) {
  Communicator& world = *session.grid().world;
  const std::optional<Manifest> manifest =
      read_newest_manifest(writer.folder, world, options.override_fixed);
  if (!manifest) return false;
  const auto check = [&](const Manifest& checkpoint) {
    std::vector<config::Difference> differences = compare(checkpoint, recipe);
    const auto warned = check_resume(differences, options.override_fixed);
    if (!warned.empty()) options.log.warn("the recipe has changed:" + describe(warned));
    if (changes_scores(warned)) {
      options.log.warn(
          "evaluations before and after this change do not compare; checkpoint.keep_best still "
          "takes the best score of all for the best checkpoint");
    }
    check_tokenizer(checkpoint, session, options);
    check_data(checkpoint, session, options);
    return differences;
  };
  std::vector<config::Difference> differences = check(*manifest);
  const std::optional<LoadedCheckpoint> loaded =
      load_newest(writer.folder, session, world, writer.warn, options.override_fixed);
  if (!loaded) return false;
  // An older one, since the newest is damaged, may be of another recipe.
  if (loaded->manifest.step != manifest->step) differences = check(loaded->manifest);
  const Manifest& resumed = loaded->manifest;
  // Of what the ranks now hold, not of the file: it shows a fault in loading too.
  options.log.info(fmt::format("resumed {} at step {}, digest {}", loaded->path, resumed.step,
                               state_digest(session, resumed.step, resumed.samples, world)));
  resume_courses(resumed, recipe, session, options, writer);
  writer.run_id = resumed.run_id;
  writer.resumed_step = resumed.step;
  writer.resumed_score = resumed.score;
  const std::string overridden = overridden_keys(resumed, differences);
  if (!overridden.empty()) writer.written_by[kOverridden] = overridden;
  const auto break_evens = resumed.written_by.find(kWrittenBreakEvens);
  if (break_evens != resumed.written_by.end()) writer.written_by.insert(*break_evens);
  return true;
}

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

/// The checkpoint's names, of what `init_from` takes, by what the model calls them: the first entry
/// of `rename` that a name begins with replaces that part of it. Throws Error (exit 12) if an entry
/// of `take` or `rename` matches nothing.
std::map<std::string, std::string> chosen_names(const Manifest& manifest,
                                                const InitFrom& init_from) {
  std::map<std::string, std::string> source_of;
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

/// This rank's weights, each unit by itself: those that the checkpoint has, by its names, and the
/// model's names of the rest.
struct Found {
  ModelWeights taken;
  std::map<std::string, std::string> source_of;  ///< of those taken
  std::vector<std::string> taken_names, missing;
};

Found find_weights(const BuiltModel& model, const std::map<std::string, std::string>& source_of) {
  Found found;
  ModelWeights all = weights_of(model);
  all.permutations.clear();
  all.soft_cells.clear();
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

/// Over all ranks, each name once. Collective.
std::vector<std::string> gather_names(const std::vector<std::string>& own, Communicator& world) {
  std::set<std::string> names;
  for (const std::string& text : gather_text(world, join_words(own, "\n"))) {
    std::istringstream lines(text);
    for (std::string name; std::getline(lines, name);) names.insert(name);
  }
  return {names.begin(), names.end()};
}

std::string list_some(std::vector<std::string> names) {
  const size_t left_out = names.size() - std::min(names.size(), kMostListed);
  names.resize(names.size() - left_out);
  return join_words(names) + (left_out > 0 ? fmt::format(" and {} more", left_out) : "");
}

/// Paths of the MoE layers whose routers assign tokens by run.seed.
std::set<std::string> seeded_layers(const BuiltModel& model) {
  std::set<std::string> paths;
  for (const auto& stage : model.stages) {
    const auto layer = std::dynamic_pointer_cast<MoeLayer>(stage);
    if (layer != nullptr && layer->router().assigns_by_seed()) paths.insert(layer->path());
  }
  return paths;
}

std::set<std::string> seeded_layers(const Recipe& recipe) {
  return seeded_layers(build_model(recipe, make_source(recipe)->shape(), nullptr, torch::kMeta));
}

/// The path (MoeStage::path) of the layer to which an expert's tensor belongs; "" for other
/// tensors.
std::string layer_of_expert(std::string_view name) {
  constexpr std::string_view kBackbone = "backbone.";
  const size_t end = name.find(".experts.");
  if (end == name.npos) return "";
  const size_t begin = name.starts_with(kBackbone) ? kBackbone.size() : 0;
  return std::string(name.substr(begin, end - begin));
}

/// Throws Error (exit 12) if experts are taken from a hash router's layer into one with another
/// run.seed or path, from which it draws their tokens.
void require_own_tokens(const Manifest& manifest, const Recipe& recipe, const BuiltModel& model,
                        const std::map<std::string, std::string>& source_of) {
  const std::set<std::string> layers = seeded_layers(model);
  if (layers.empty()) return;
  const Recipe own = stored_recipe(manifest);
  const std::set<std::string> layers_before = seeded_layers(own);
  const bool is_other_seed = own.run.seed != recipe.run.seed;
  for (const auto& [name, name_before] : source_of) {
    const std::string layer = layer_of_expert(name), source = layer_of_expert(name_before);
    if (!layers.contains(layer) || !layers_before.contains(source)) continue;
    if (!is_other_seed && source == layer) continue;
    if (is_other_seed) {
      throw Error(ExitCode::kMismatch,
                  fmt::format("model.init_from: the experts of {} were trained with run.seed {}; "
                              "with {} the hash router would give them other tokens",
                              source, own.run.seed, recipe.run.seed),
                  fmt::format("set run.seed={}", own.run.seed));
    }
    throw Error(ExitCode::kMismatch,
                fmt::format("model.init_from: the experts of {} cannot become those of {}: the "
                            "hash router assigns tokens by the layer's name",
                            source, layer),
                "take experts of hash routers without renaming them");
  }
}

/// Fills the weights, each from its average where the checkpoint has one, unless `raw_weights`.
/// Collective.
void load_tensors(const std::string& checkpoint, const Manifest& manifest, ModelWeights weights,
                  Communicator& world, bool raw_weights) {
  for (Parameter& weight : weights.list) {
    // Of a stack all units have averages, or none has.
    const std::string name = name_of_first_unit(weight);
    const bool is_averaged = averaged_name(manifest, name) != name;
    if (is_averaged && !raw_weights) weight.name = WeightAverage::kPrefix + weight.name;
  }
  load_checkpoint(checkpoint, weights, world, {.ignore_extra = true});
}

/// Fills the weights whose names `source_of` has, and returns a line for the log: how many were
/// taken and which of the model's keep their random values. Permutations and masks go with their
/// weights. Collective. Throws Error (exit 12) if none was taken, or as TakenSparseState and
/// load_checkpoint.
std::string load_some_weights(const std::string& checkpoint, const SourceOf& source_of,
                              Session& session, bool raw_weights) {
  const BuiltModel& model = session.model();
  Communicator& world = *session.grid().world;
  Found found = find_weights(model, source_of);
  const std::vector<std::string> taken = gather_names(found.taken_names, world);
  const std::vector<std::string> random = gather_names(found.missing, world);
  if (taken.empty()) {
    throw Error(ExitCode::kMismatch,
                fmt::format("model.init_from: no weight of '{}' has a place in the model, which "
                            "wants {}",
                            checkpoint, list_some(random)),
                "look at the names of both and at model.init_from.rename");
  }
  const Manifest manifest = read_manifest(checkpoint, world);
  std::optional<TakenSparseState> sparse;
  on_every_rank(world, [&] {
    sparse.emplace(model, session.prune_grow(), found.source_of, manifest, checkpoint);
    sparse->require_whole(random);
    require_branches(found.source_of, manifest, checkpoint);
  });
  load_tensors(checkpoint, manifest, std::move(found.taken), world, raw_weights);
  load_checkpoint(checkpoint, *sparse, world, {.ignore_extra = true});
  if (PruneGrow* prune_grow = session.prune_grow()) {
    on_every_rank(world, [&] { prune_grow->require_masks_fit(); });
  }
  std::string report =
      fmt::format(": {} taken", counted(static_cast<int64_t>(taken.size()), "weight"));
  if (!random.empty()) {
    report +=
        fmt::format(", {} with random values: {}",
                    counted(static_cast<int64_t>(random.size()), "weight"), list_some(random));
  }
  return report;
}

}  // namespace

void require_own_tokenizer(const Manifest& manifest, const std::string& identity) {
  const std::string what = tokenizer_mismatch(manifest, identity);
  if (what.empty()) return;
  throw Error(ExitCode::kMismatch, what, kTokenizerHint);
}

void require_own_seed(const Manifest& manifest, const Recipe& recipe, const BuiltModel& model) {
  const std::set<std::string> layers = seeded_layers(model);
  if (layers.empty()) return;
  const int64_t own = stored_recipe(manifest).run.seed;
  if (own == recipe.run.seed) return;
  throw Error(ExitCode::kMismatch,
              fmt::format("run.seed: the experts of {} were trained with run.seed {}; with {} the "
                          "hash router would give them other tokens",
                          *layers.begin(), own, recipe.run.seed),
              "leave run.seed out");
}

std::string describe_other_function(const Manifest& manifest, const Recipe& recipe,
                                    const BuiltModel& model, Communicator& world,
                                    const InitFrom& taken) {
  const std::map<std::string, std::string> source_of = chosen_names(manifest, taken);
  std::set<std::string> unused;
  for (const auto& [name, source] : source_of) unused.insert(source);
  for (const std::string& name : gather_names(find_weights(model, source_of).taken_names, world)) {
    unused.erase(name);
  }
  const std::string keys = describe(evaluated_differences(stored_recipe(manifest), recipe));
  if (unused.empty()) return keys;
  return fmt::format("{}\n  {} of the checkpoint without a place in the model: {}", keys,
                     counted(std::ssize(unused), "tensor"),
                     list_some({unused.begin(), unused.end()}));
}

bool has_averages(const Manifest& checkpoint) {
  const ManifestValue* updates = checkpoint.find_value(WeightAverage::kUpdates);
  const auto* count = updates == nullptr ? nullptr : std::get_if<int64_t>(&updates->value);
  return count != nullptr && *count > 0;
}

std::string averaged_name(const Manifest& checkpoint, const std::string& weight) {
  const std::string average = WeightAverage::kPrefix + weight;
  const bool is_there = has_averages(checkpoint) && checkpoint.find_tensor(average) != nullptr;
  return is_there ? average : weight;
}

void load_weights(const std::string& checkpoint, ModelWeights weights, Communicator& world,
                  bool raw_weights) {
  const Manifest manifest = read_manifest(checkpoint, world);
  fit_sparse_state(weights, manifest, checkpoint);
  load_tensors(checkpoint, manifest, std::move(weights), world, raw_weights);
}

namespace {

/// Those of a sparse checkpoint go with its weights; layers that are dense in it keep their first
/// masks. Collective.
void load_masks(const std::string& path, const Manifest& manifest, Session& session) {
  PruneGrow* prune_grow = session.prune_grow();
  if (prune_grow == nullptr || !has_masks(manifest)) return;
  MasksByName masks(*prune_grow, manifest);
  load_checkpoint(path, masks, *session.grid().world, {.ignore_extra = true});
  on_every_rank(*session.grid().world, [&] { prune_grow->require_masks_fit(); });
}

/// load_initial_weights, of a recipe with init_from, without what rules make of the weights.
std::string load_start_weights(Session& session, const Recipe& recipe) {
  Communicator& world = *session.grid().world;
  const InitFrom& init_from = *recipe.model.init_from;
  // As rank 0 sees it: a run that is being trained may commit another one meanwhile.
  const std::string path = on_rank_zero(world, [&] { return resolve_checkpoint(init_from.from); });
  const Manifest manifest = read_manifest(path, world);
  const bool is_averaged = has_averages(manifest) && !init_from.raw_weights;
  std::string source = path + (is_averaged ? " (averaged weights)" : "");
  if (recipe.model.upcycle) {
    if (session.prune_grow() != nullptr && has_masks(manifest)) {
      throw Error(ExitCode::kMismatch,
                  path + " is sparse, and model.upcycle makes no experts' masks of an MLP's",
                  "upcycle a dense checkpoint, or leave out sparsity");
    }
    require_own_tokenizer(manifest, session.train_data().tokenizer);
    load_upcycled(path, session.model(), world, init_from.raw_weights);
    require_same_model(evaluated_differences(stored_recipe(manifest), recipe));
    return source;
  }
  const std::map<std::string, std::string> source_of = chosen_names(manifest, init_from);
  require_own_tokens(manifest, recipe, session.model(), source_of);
  if (init_from.is_partial()) {
    source += load_some_weights(path, source_of, session, init_from.raw_weights);
  } else {
    require_own_tokenizer(manifest, session.train_data().tokenizer);
    load_weights(path, weights_of(session.model()), world, init_from.raw_weights);
    load_masks(path, manifest, session);
  }
  const std::string other =
      describe_other_function(manifest, recipe, session.model(), world, init_from);
  return source + (other.empty() ? "" : "; the model is not the one that they were trained in:") +
         other;
}

}  // namespace

std::string load_initial_weights(Session& session, const Recipe& recipe) {
  if (!recipe.model.init_from) return "";
  std::string source = load_start_weights(session, recipe);
  session.weights_loaded();
  return source;
}

CheckpointWriter::Options begin_or_resume(Session& session, const Recipe& recipe,
                                          const RunFolder& folder, const ResumeOptions& options) {
  Communicator& world = *session.grid().world;
  CheckpointWriter::Options writer;
  writer.folder = folder.checkpoints();
  writer.keep_last = recipe.checkpoint.keep_last;
  writer.keep_best = recipe.checkpoint.keep_best;
  writer.recipe = config::canonical_text(recipe);
  writer.written_by = provenance(session.grid());
  writer.warn = [&log = options.log](const std::string& line) { log.warn(line); };
  if (folder.resume && resume(session, recipe, options, writer)) return writer;
  if (recipe.run.on_existing == OnExisting::kResume) {
    const std::string weights = load_initial_weights(session, recipe);
    if (!weights.empty()) options.log.info("weights start from " + weights);
  }
  writer.run_id = broadcast_text(world, new_run_id());
  return writer;
}

}  // namespace shoal
