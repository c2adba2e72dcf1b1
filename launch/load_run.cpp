#include "launch/load_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <optional>

#include "launch/resume_rules.h"
#include "launch/world.h"
#include "parallel/checkpoint_folder.h"
#include "parallel/checkpoint_load.h"
#include "parallel/on_rank_zero.h"
#include "parallel/state_list.h"
#include "runtime/build_info.h"
#include "runtime/config_reader.h"
#include "runtime/config_writer.h"

namespace shoal {
namespace {

// The weights alone, for starting another training from them.
class WeightsOnly : public Stateful {
 public:
  explicit WeightsOnly(const std::vector<Parameter>& parameters) : parameters_(parameters) {}
  void visit_state(StateVisitor& visitor) override { visit_parameters(parameters_, visitor); }

 private:
  const std::vector<Parameter>& parameters_;
};

std::vector<RecipeDifference> compare(const std::string& checkpoint_recipe, const Recipe& recipe) {
  const auto& type = static_cast<const config::StructType&>(config::type_of<Recipe>());
  const auto before = config::load_options_text<Recipe>(
      checkpoint_recipe, "the checkpoint's recipe", {}, config::UnsetVariable::kKeep);
  std::vector<RecipeDifference> result;
  for (const config::Difference& difference :
       config::diff(config::to_node(type, &before.options), config::to_node(type, &recipe))) {
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

// Nothing if the folder holds no checkpoint.
std::optional<LoadedCheckpoint> resume(Session& session, const Recipe& recipe,
                                       const RunFolder& folder, const ResumeOptions& options) {
  Communicator& world = *session.grid().world;
  const std::optional<Manifest> manifest = read_newest_manifest(folder.checkpoints(), world);
  if (!manifest) return std::nullopt;
  warn_of(check_resume(compare(manifest->recipe, recipe), options.override_fixed), options.log);
  std::optional<LoadedCheckpoint> loaded =
      load_newest(folder.checkpoints(), session, world,
                  [&options](const std::string& line) { options.log.warn(line); });
  if (!loaded) return std::nullopt;
  // Of what the ranks now hold, not of the file: it tells a fault in loading too.
  const std::string digest =
      state_digest(session, loaded->manifest.step, loaded->manifest.samples, world);
  options.log.info(
      fmt::format("resumed {} at step {}, digest {}", loaded->path, loaded->manifest.step, digest));
  return loaded;
}

}  // namespace

std::string agree_on_checkpoint(const std::string& path, bool best, Communicator& world) {
  return on_rank_zero(world, [&] { return resolve_checkpoint(path, best); });
}

void load_weights(const std::string& checkpoint, const std::vector<Parameter>& parameters,
                  Communicator& world) {
  WeightsOnly weights(parameters);
  load_checkpoint(checkpoint, weights, world, {.ignore_extra = true});
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
  std::optional<LoadedCheckpoint> loaded;
  if (folder.resume) loaded = resume(session, recipe, folder, options);
  if (loaded) {
    writer.run_id = loaded->manifest.run_id;
    writer.resumed_step = loaded->manifest.step;
    return writer;
  }
  if (recipe.model.init_from) {
    const std::string path = agree_on_checkpoint(*recipe.model.init_from, false, world);
    load_weights(path, session.parameters(), world);
    options.log.info("weights start from " + path);
  }
  writer.run_id = broadcast_text(world, new_run_id());
  return writer;
}

}  // namespace shoal
