#include "parallel/checkpoint/checkpoint_load.h"

#include <fmt/format.h>

#include <exception>
#include <sstream>
#include <utility>
#include <vector>

#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/save_plan.h"
#include "parallel/checkpoint/state_list.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/error.h"
#include "runtime/files/file_system.h"

namespace shoal {
namespace {

/// Collective. The names of all ranks' tensors.
std::vector<std::string> names_everywhere(const StateList& list, Communicator& world) {
  std::vector<std::string> names;
  for (const auto& entries : plan_save(gather_text(world, describe_entries(list.entries())))) {
    for (const SafetensorsEntry& entry : entries) names.push_back(entry.name);
  }
  return names;
}

void read_tensors(const CheckpointReader& reader, const StateList& list) {
  torch::NoGradGuard no_grad;
  for (const StateEntry& item : list.tensors) {
    const ManifestTensor* tensor = reader.manifest().find_tensor(item.entry.name);
    torch::Tensor value = item.value;
    const bool in_place = value.is_cpu() && value.is_contiguous();
    torch::Tensor target =
        in_place ? value : torch::empty(value.sizes(), value.options().device(torch::kCPU));
    reader.read(*tensor, static_cast<char*>(target.mutable_data_ptr()));
    if (!in_place) value.copy_(target);
  }
}

/// The text of a manifest that can be read. Throws CheckpointError.
std::string checked_manifest_text(const std::string& path) {
  std::string text = read_manifest_text(path);
  parse_manifest(text, path + "/" + kManifestName);
  return text;
}

}  // namespace

Manifest read_manifest(const std::string& path, Communicator& world) try {
  const std::string text = on_rank_zero(world, [&] { return checked_manifest_text(path); });
  return parse_manifest(text, path);
} catch (const CheckpointError& error) {
  throw naming_older(error, path);
}

LoadedCheckpoint load_checkpoint(const std::string& path, Stateful& state, Communicator& world,
                                 const LoadOptions& options) {
  const std::string text = on_rank_zero(world, [&] { return read_manifest_text(path); });
  refuse_newer_format(text, path + "/" + kManifestName);
  on_every_rank(world, [&] {
    const Manifest manifest = parse_manifest(text, path + "/" + kManifestName);
    state.fit_to([&](const std::string& name) { return manifest.find_tensor(name) != nullptr; });
  });
  const StateList list = list_state(state);
  const std::vector<std::string> everywhere = names_everywhere(list, world);
  LoadedCheckpoint loaded{path, {}};
  on_every_rank(world, [&] {
    CheckpointReader reader(path, text);
    require_fit(list, everywhere, reader.manifest(), path, options.ignore_extra);
    read_tensors(reader, list);
    loaded.manifest = std::move(reader).manifest();
  });
  // Its collective calls come first, so that an error on one rank leaves no other waiting.
  on_every_rank(world, [&] { state.tensors_loaded(); });
  restore_values(state, loaded.manifest);
  return loaded;
}

std::optional<LoadedCheckpoint> load_newest(const std::string& folder, Stateful& state,
                                            Communicator& world, const Warn& warn,
                                            bool pass_unreadable) {
  std::istringstream steps(on_rank_zero(world, [&] {
    std::string text;
    for (const int64_t step : list_checkpoints(folder)) text = fmt::format("{} {}", step, text);
    return text;
  }));
  bool is_any = false;
  std::optional<LoadedCheckpoint> loaded;
  std::vector<std::pair<int64_t, std::string>> unreadable;  // with their errors
  for (int64_t step = 0; !loaded && steps >> step; is_any = true) {
    try {
      loaded = load_checkpoint(folder + "/" + step_folder(step), state, world);
    } catch (const NewerFormatError&) {
      throw;  // on every rank: all read the same text
    } catch (const CheckpointError& error) {
      if (world.rank() != 0) continue;
      warn(fmt::format("passing over a checkpoint that is not valid: {}", error.what()));
    } catch (const StorageError& error) {
      if (!pass_unreadable) throw;
      unreadable.emplace_back(step, error.what());
    }
  }
  if (!is_any) return std::nullopt;
  if (!loaded && !unreadable.empty()) throw StorageError(unreadable.front().second);
  if (!loaded) {
    throw CheckpointError(fmt::format("no checkpoint in '{}' is valid", folder),
                          "`shoal ckpt verify STEP_FOLDER` shows what is wrong with one");
  }
  on_rank_zero(world, [&]() -> std::string {
    PosixFileSystem files;
    for (const auto& [step, error] : unreadable) {
      warn(fmt::format("passing over a checkpoint that cannot be read, kept as '{}': {}",
                       set_aside(files, folder, step), error));
    }
    return "";
  });
  return loaded;
}

std::optional<Manifest> read_newest_manifest(const std::string& folder, Communicator& world,
                                             bool pass_unreadable) {
  const std::string text = on_rank_zero(world, [&]() -> std::string {
    const std::vector<int64_t> steps = list_checkpoints(folder);
    std::exception_ptr newest_error;
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      try {
        return checked_manifest_text(folder + "/" + step_folder(*step));
      } catch (const NewerFormatError&) {
        throw;
      } catch (const Error& error) {
        if (error.code() == ExitCode::kStorage && !pass_unreadable) throw;
        // load_newest passes over it too, with a warning.
        if (!newest_error) newest_error = std::current_exception();
      }
    }
    if (newest_error) std::rethrow_exception(newest_error);
    return "";
  });
  if (text.empty()) return std::nullopt;
  return parse_manifest(text, folder);
}

}  // namespace shoal
