#include "launch/train/restore.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <set>
#include <sstream>

#include "launch/job/launch_info.h"
#include "launch/train/partial_weights.h"
#include "launch/train/resume_rules.h"
#include "launch/train/upcycle.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "parallel/checkpoint/state_list.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/build_info.h"
#include "runtime/recipe/config_reader.h"
#include "runtime/recipe/config_writer.h"

namespace shoal {
namespace {

// In a manifest's written_by: blank-separated recipe keys.
constexpr const char* kOverridden = "overridden";

// The weights alone, for starting another training from them.
class WeightsOnly : public Stateful {
 public:
  explicit WeightsOnly(const BuiltModel& model) : model_(model) {}
  void visit_state(StateVisitor& visitor) override { visit_weights(model_, visitor); }

 private:
  const BuiltModel& model_;
};

std::vector<RecipeDifference> compare(const std::string& checkpoint_recipe, const Recipe& recipe) {
  const auto before = config::load_options_text<Recipe>(
      checkpoint_recipe, "the checkpoint's recipe", {}, config::UnsetVariable::kKeep);
  std::vector<RecipeDifference> result;
  for (const config::Difference& difference :
       config::diff(config::to_node(before.options), config::to_node(recipe))) {
    result.push_back({difference.path, difference.before.value_or("(none)"),
                      difference.after.value_or("(none)")});
  }
  return result;
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

void warn_of(const std::vector<RecipeDifference>& differences, Log& log) {
  if (!differences.empty()) log.warn("the recipe has changed:" + describe(differences));
}

// Fixed keys that --override let differ, now or before.
std::string overridden_keys(const Manifest& manifest,
                            const std::vector<RecipeDifference>& differences) {
  std::set<std::string> keys;
  const auto before = manifest.written_by.find(kOverridden);
  if (before != manifest.written_by.end()) {
    std::istringstream words(before->second);
    for (std::string key; words >> key;) keys.insert(key);
  }
  for (const RecipeDifference& difference : differences) {
    if (role_of_key(difference.path) == KeyRole::kFixed) keys.insert(difference.path);
  }
  return fmt::format("{}", fmt::join(keys, " "));
}

// The data that the checkpoint was trained on are those at hand, or --override allows others.
void check_data(const Manifest& manifest, const Session& session, const ResumeOptions& options) {
  const ManifestValue* found = manifest.find_value(kDataFingerprint);
  const auto* trained_on = found == nullptr ? nullptr : std::get_if<std::string>(&found->value);
  if (trained_on == nullptr || *trained_on == session.data_fingerprint()) return;
  const std::string what = fmt::format(
      "the training data are not those of the checkpoint:\n  checkpoint: {}\n  now:        {}",
      *trained_on, session.data_fingerprint());
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
  const std::optional<Manifest> manifest = read_newest_manifest(writer.folder, world);
  if (!manifest) return false;
  const std::vector<RecipeDifference> differences = compare(manifest->recipe, recipe);
  warn_of(check_resume(differences, options.override_fixed), options.log);
  const std::optional<LoadedCheckpoint> loaded =
      load_newest(writer.folder, session, world,
                  [&options](const std::string& line) { options.log.warn(line); });
  if (!loaded) return false;
  check_data(loaded->manifest, session, options);
  const Manifest& resumed = loaded->manifest;
  // Of what the ranks now hold, not of the file: it shows a fault in loading too.
  options.log.info(fmt::format("resumed {} at step {}, digest {}", loaded->path, resumed.step,
                               state_digest(session, resumed.step, resumed.samples, world)));
  writer.run_id = resumed.run_id;
  writer.resumed_step = resumed.step;
  const std::string overridden = overridden_keys(resumed, differences);
  if (!overridden.empty()) writer.written_by[kOverridden] = overridden;
  return true;
}

}  // namespace

std::string agree_on_checkpoint(const std::string& path, bool best, Communicator& world) {
  return on_rank_zero(world, [&] { return resolve_checkpoint(path, best); });
}

void load_weights(const std::string& checkpoint, const BuiltModel& model, Communicator& world) {
  WeightsOnly weights(model);
  load_checkpoint(checkpoint, weights, world, {.ignore_extra = true});
}

std::string load_initial_weights(Session& session, const Recipe& recipe) {
  if (!recipe.model.init_from) return "";
  Communicator& world = *session.grid().world;
  const InitFrom& init_from = *recipe.model.init_from;
  const std::string path = agree_on_checkpoint(init_from.from, false, world);
  if (init_from.is_partial())
    return path + load_some_weights(path, init_from, session.model(), world);
  if (recipe.model.upcycle) {
    load_upcycled(path, session.model(), world);
    require_same_model(compare(read_manifest(path, world).recipe, recipe));
  } else {
    load_weights(path, session.model(), world);
  }
  return path;
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
