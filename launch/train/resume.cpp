#include "launch/train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "launch/job/launch_info.h"
#include "launch/machine/break_even_file.h"
#include "launch/recipe/resume_rules.h"
#include "launch/train/clock_trial.h"
#include "launch/train/courses.h"
#include "launch/weights/init_from.h"
#include "launch/weights/load_weights.h"
#include "launch/weights/open_checkpoint.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "parallel/checkpoint/state_list.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/build_info.h"
#include "runtime/base/text.h"
#include "runtime/data/class_options.h"
#include "runtime/options/config_writer.h"

namespace shoal {
namespace {

// In a manifest's written_by: blank-separated recipe keys.
constexpr const char* kOverridden = "overridden";

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
          {kStartedIn, working_directory()},
          {"world", std::to_string(grid.world->size())},
          {"expert_ranks", std::to_string(grid.expert->size())}};
}

// Fixed keys that --override let differ, now or before.
std::string overridden_keys(const Manifest& manifest, const std::vector<ChangedKey>& differences) {
  std::set<std::string> keys;
  const auto before = manifest.written_by.find(kOverridden);
  if (before != manifest.written_by.end()) {
    for (const std::string& key : split(before->second, ' ')) keys.insert(key);
  }
  for (const ChangedKey& key : differences) {
    if (key.rules.resume.on_resume == OnResume::kFixed) keys.insert(key.path);
  }
  return fmt::format("{}", fmt::join(keys, " "));
}

// What differs ends a resume, unless --override allows it.
void refuse(const std::string& what, const std::string& hint, const ResumeOptions& options) {
  if (!options.override_fixed) throw Error(ExitCode::kMismatch, what, hint);
  options.log.warn(what);
}

void check_tokenizer(const Manifest& manifest, const Session& session,
                     const ResumeOptions& options) {
  const std::string what = tokenizer_mismatch(manifest, session.train_data().tokenizer);
  if (what.empty()) return;
  refuse(what, std::string(kTokenizerHint) + ", or accept the difference with --override", options);
}

// The data that the checkpoint was trained on are those at hand, or --override allows others.
void check_data(const Manifest& manifest, const Session& session, const ResumeOptions& options) {
  const ManifestValue* found = manifest.find_value(kDataFingerprint);
  const auto* trained_on = found == nullptr ? nullptr : std::get_if<std::string>(&found->value);
  if (trained_on == nullptr || *trained_on == session.train_data().fingerprint) return;
  refuse(
      fmt::format("the training data are not those of the checkpoint:\n  checkpoint: {}\n  "
                  "now:        {}",
                  *trained_on, session.train_data().fingerprint),
      "name, size and a hash of sampled blocks of each file; put the files back, start a new run "
      "(another run.name), or accept the difference with --override",
      options);
}

// Gives `writer` what a resumed run hands on. False if the folder holds no checkpoint.
bool resume(Session& session, const Recipe& recipe, const ResumeOptions& options,
            CheckpointWriter::Options& writer) {
  Communicator& world = *session.grid().world;
  const std::optional<Manifest> manifest =
      read_newest_manifest(writer.folder, world, options.override_fixed);
  if (!manifest) return false;
  bool compares_scores = true;
  const auto check = [&](const Manifest& checkpoint) {
    std::vector<ChangedKey> differences = differences_of(stored_recipe(checkpoint), recipe);
    const auto warned = check_resume(differences, options.override_fixed);
    if (!warned.empty()) options.log.warn("the recipe has changed:" + describe(warned));
    compares_scores = !changes_scores(warned);
    if (!compares_scores) {
      options.log.warn(
          "evaluations before and after this change do not compare; checkpoint.keep_best still "
          "takes the best score of all for the best checkpoint, and train.patience counts anew");
    }
    check_tokenizer(checkpoint, session, options);
    check_data(checkpoint, session, options);
    return differences;
  };
  std::vector<ChangedKey> differences = check(*manifest);
  const std::optional<LoadedCheckpoint> loaded =
      load_newest(writer.folder, session, world, writer.warn, options.override_fixed);
  if (!loaded) return false;
  // An older one, since the newest is damaged, may be of another recipe.
  if (loaded->manifest.step != manifest->step) differences = check(loaded->manifest);
  const Manifest& resumed = loaded->manifest;
  // Of what the ranks now hold, not of the file: it shows a fault in loading too.
  options.log.info(fmt::format("resumed {} at step {}, digest {}", loaded->path, resumed.step,
                               state_digest(session, resumed.step, resumed.samples, world)));
  resume_courses(resumed, recipe, session, options.override_fixed, writer);
  if (!compares_scores) session.forget_scores();
  if (compares_scores && resumed.score) session.add_score(*resumed.score);  // where it is missing
  writer.run_id = resumed.run_id;
  writer.resumed_step = resumed.step;
  writer.resumed_score = resumed.score;
  const std::string overridden = overridden_keys(resumed, differences);
  if (!overridden.empty()) writer.written_by[kOverridden] = overridden;
  const auto break_evens = resumed.written_by.find(kWrittenBreakEvens);
  if (break_evens != resumed.written_by.end()) writer.written_by.insert(*break_evens);
  const auto clock = resumed.written_by.find(kWrittenClock);
  const bool is_timed = clock != resumed.written_by.end() &&
                        stored_recipe(resumed).train.duration == recipe.train.duration;
  if (is_timed) writer.written_by.insert(*clock);
  return true;
}

/// The classes of a head that model.init_from takes; empty without such a head, or if not known.
/// Collective.
std::vector<std::string> initial_classes(const Recipe& recipe, Communicator& world) {
  const std::optional<InitFrom>& init_from = recipe.model.init_from;
  if (!init_from) return {};
  const std::string path = on_rank_zero(world, [&] { return initial_checkpoint(*init_from); });
  const Manifest manifest = read_manifest(path, world);
  if (!chosen_names(manifest, *init_from).contains("head.weight")) return {};
  Recipe stored = stored_recipe(manifest, path);
  const ClassOptions* classes = class_options_of(stored.data.source);
  return classes == nullptr ? std::vector<std::string>() : classes->class_names;
}

}  // namespace

std::string load_initial_weights(Session& session, const Recipe& recipe) {
  if (!recipe.model.init_from) return "";
  std::string source = load_initial_weights(session.model(), recipe, session.train_data().tokenizer,
                                            *session.grid().world);
  session.weights_loaded();
  return source;
}

std::string keep_classes(LoadedRecipe& loaded, Communicator& world, bool pass_unreadable) {
  const RunOptions& run = loaded.options.run;
  ClassOptions* own = class_options_of(loaded.options.data.source);
  if (own == nullptr) return "";
  const auto is_found = [&loaded](const char* key) {
    return std::ranges::any_of(loaded.found,
                               [key](const auto& path) { return path.ends_with(key); });
  };
  std::optional<Manifest> resumed;
  if (run.on_existing == OnExisting::kResume) {
    resumed = read_newest_manifest(run_path(run) + "/ckpt", world, pass_unreadable);
  }
  if (resumed) {
    Recipe stored = stored_recipe(*resumed);
    const ClassOptions* kept = class_options_of(stored.data.source);
    if (kept == nullptr) return "";
    if (is_found(".classes")) own->classes = kept->classes;
    if (own->class_names.empty() || is_found(".class_names")) own->class_names = kept->class_names;
  } else {
    const std::vector<std::string> initial = initial_classes(loaded.options, world);
    const std::vector<std::string>& names = own->class_names;
    if (initial.empty() || initial == names) return "";
    if (names.empty() && std::ssize(initial) != own->classes) return "";
    if (!names.empty() && !std::ranges::is_permutation(initial, names)) {
      const auto other = std::ranges::find_if(names, [&](const std::string& name) {
        return std::ranges::find(initial, name) == initial.end();
      });
      return fmt::format(
          "model.init_from takes a head that was trained for other classes than "
          "data.class_names{}; model.init_from.take=[backbone.*] starts with a new one",
          other == names.end() ? "" : ", without " + quoted_excerpt(*other));
    }
    if (!names.empty() && !is_found(".class_names")) {
      return "model.init_from takes a head that was trained for these classes in another order "
             "than data.class_names; leave data.class_names out";
    }
    own->class_names = initial;
  }
  share_classes(loaded.options);
  return "";
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
  writer.throw_if_failed = [&session] { session.throw_if_failed(); };
  if (folder.resume && resume(session, recipe, options, writer)) return writer;
  if (recipe.run.on_existing == OnExisting::kResume) {
    const std::string weights = load_initial_weights(session, recipe);
    if (!weights.empty()) options.log.info("weights start from " + weights);
  }
  writer.run_id = broadcast_text(world, new_run_id());
  return writer;
}

}  // namespace shoal
