#include "parallel/checkpoint/checkpoint_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

constexpr char kSavePrefix[] = ".tmp-step-";
constexpr char kRemovalPrefix[] = ".old-step-";
constexpr char kUnreadable[] = ".unreadable";

bool is_folder(const std::string& path) { return kind_of(path) == PathKind::kFolder; }

std::string path_of(const std::string& folder, int64_t step) {
  return folder + "/" + step_folder(step);
}

/// Called for a checkpoint that is damaged or unreadable, while its error is handled; may throw.
using Passed = std::function<void(int64_t step, const Error& error)>;

bool is_usable(const std::string& path, int64_t step, bool reads_data, const Passed& passed) try {
  const CheckpointReader reader(path);
  if (reads_data) reader.verify_data();
  return true;
} catch (const Error& error) {
  passed(step, error);
  return false;
}

/// Steps of the first `most` usable ones by score, the earliest of equals first.
std::vector<int64_t> best_steps(const std::string& folder, int64_t most, bool reads_data,
                                const Passed& passed) {
  std::vector<std::pair<double, int64_t>> scored;
  for (const int64_t step : list_checkpoints(folder)) {
    try {
      const std::string path = path_of(folder, step);
      const std::optional<double> score = parse_manifest(read_manifest_text(path), path).score;
      if (score.has_value() && *score == *score) scored.emplace_back(-*score, step);
    } catch (const Error& error) {
      passed(step, error);
    }
  }
  std::sort(scored.begin(), scored.end());
  std::vector<int64_t> steps;
  for (const auto& [score, step] : scored) {
    if (std::ssize(steps) == most) break;
    if (is_usable(path_of(folder, step), step, reads_data, passed)) steps.push_back(step);
  }
  return steps;
}

/// Renamed first, so that no part of a checkpoint ever has a checkpoint's name.
void remove_checkpoint(FileSystem& files, const std::string& folder, int64_t step) {
  const std::string doomed = fmt::format("{}/.old-{}", folder, step_folder(step));
  rename_path(files, path_of(folder, step), doomed);
  remove_folder(files, doomed);
}

}  // namespace

bool is_checkpoint_entry(const std::string& name, bool is_folder) {
  return is_folder && (parse_step_folder(name.substr(0, name.find(kUnreadable))).has_value() ||
                       name.starts_with(kSavePrefix) || name.starts_with(kRemovalPrefix));
}

std::vector<int64_t> list_checkpoints(const std::string& folder) {
  std::vector<int64_t> steps;
  if (!is_folder(folder)) return steps;
  for (const std::string& name : UntrustedFolder(folder).names()) {
    // Not only folders: the reader reports an entry of another kind.
    if (const auto step = parse_step_folder(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::string> find_best(const std::string& folder, const Warn& warn) {
  const Passed passed = [&warn](int64_t, const Error& error) {
    if (!warn) return;
    warn(fmt::format("a checkpoint is kept, but cannot be the best one: {}", error.what()));
  };
  const std::vector<int64_t> best = best_steps(folder, 1, /*reads_data=*/false, passed);
  return best.empty() ? std::nullopt : std::optional(path_of(folder, best.front()));
}

CheckpointError naming_older(const CheckpointError& error, const std::string& path) {
  if (!error.hint().empty()) throw;  // of its own type
  const std::optional<int64_t> own = parse_step_folder(path.substr(path.rfind('/') + 1));
  const std::string folder = parent_path(path);
  std::vector<int64_t> steps;
  try {
    if (own) steps = list_checkpoints(folder);
  } catch (const Error&) {
    return error;
  }
  const auto ignore = [](int64_t, const Error&) {};
  for (; !steps.empty(); steps.pop_back()) {
    const std::string older = path_of(folder, steps.back());
    if (steps.back() < *own && is_usable(older, steps.back(), /*reads_data=*/false, ignore)) {
      return CheckpointError(error.what(), fmt::format("use the next older one, '{}'", older));
    }
  }
  return error;
}

std::string resolve_checkpoint(const std::string& given, bool best, bool pass_unreadable,
                               const Warn& warn) {
  const std::string path = given.substr(0, given.find_last_not_of('/') + 1);
  for (const std::string& folder : {path + "/ckpt", path}) {
    std::vector<int64_t> steps = list_checkpoints(folder);
    if (steps.empty()) continue;
    const Passed passed = [&](int64_t step, const Error& error) {
      const auto* damage = dynamic_cast<const CheckpointError*>(&error);
      if (damage != nullptr && !best) throw naming_older(*damage, path_of(folder, step));
      if (damage == nullptr && !pass_unreadable) throw;
      if (warn) warn(fmt::format("passing over a checkpoint: {}", error.what()));
    };
    std::reverse(steps.begin(), steps.end());
    if (best) steps = best_steps(folder, 1, pass_unreadable, passed);
    for (const int64_t step : steps) {
      const std::string found = path_of(folder, step);
      if (best || !pass_unreadable || is_usable(found, step, /*reads_data=*/true, passed)) {
        return found;
      }
    }
    if (!best) throw StorageError(fmt::format("no checkpoint in '{}' can be read", folder));
    throw CheckpointError(fmt::format("no checkpoint in '{}' has a score", folder),
                          "the best is known once an evaluation ran at a checkpoint's step");
  }
  if (is_folder(path + "/ckpt")) {
    throw CheckpointError(fmt::format("'{}/ckpt' holds no checkpoint", path));
  }
  if (is_folder(path) && kind_of(path + "/manifest.json") == PathKind::kNothing) {
    throw CheckpointError(fmt::format("'{}' is no checkpoint and no run that has one", path),
                          "name a checkpoint or a run; `shoal runs` lists the runs");
  }
  return path;
}

std::vector<std::string> list_checkpoint_paths(const std::string& path) {
  for (const std::string& folder : {path + "/ckpt", path}) {
    std::vector<std::string> paths;
    for (const int64_t step : list_checkpoints(folder)) {
      paths.push_back(path_of(folder, step));
    }
    if (!paths.empty()) return paths;
  }
  return {resolve_checkpoint(path)};
}

std::string remove_old_checkpoints(FileSystem& files, const std::string& folder,
                                   const Retention& retention) {
  std::vector<int64_t> steps = list_checkpoints(folder);
  // An earlier attempt has left later steps, before the run went back to a lower one.
  for (; !steps.empty() && steps.back() > retention.newest; steps.pop_back()) {
    remove_checkpoint(files, folder, steps.back());
  }
  const auto num_last = std::min<size_t>(
      steps.size(), static_cast<size_t>(std::max<int64_t>(1, retention.keep_last)));
  if (num_last == steps.size()) return "";
  std::set<int64_t> kept(steps.end() - static_cast<std::ptrdiff_t>(num_last), steps.end());
  std::vector<std::string> problems;
  const Passed keep = [&](int64_t step, const Error& error) {
    if (kept.insert(step).second) problems.emplace_back(error.what());
  };
  const auto best = best_steps(folder, retention.keep_best, /*reads_data=*/false, keep);
  kept.insert(best.begin(), best.end());
  for (const int64_t step : steps) {
    if (kept.contains(step) || step == retention.never_remove) continue;
    remove_checkpoint(files, folder, step);
  }
  return join_words(problems, "; ");
}

std::string set_aside(FileSystem& files, const std::string& folder, int64_t step) {
  const std::string path = path_of(folder, step);
  std::string aside = path + kUnreadable;
  while (name_exists(aside)) aside += "+";
  rename_path(files, path, aside);
  return aside;
}

void remove_leftovers(FileSystem& files, const std::string& folder) {
  if (!is_folder(folder)) return;
  for (const std::string& name : UntrustedFolder(folder).names()) {
    if (name.starts_with(kSavePrefix) || name.starts_with(kRemovalPrefix)) {
      remove_folder(files, folder + "/" + name);
    }
  }
}

void remove_folder(FileSystem& files, const std::string& path) {
  if (!name_exists(path)) return;
  if (link_target(path) || !is_folder(path)) return remove_path(files, path);
  for (const std::string& name : UntrustedFolder(path).names()) {
    remove_folder(files, path + "/" + name);
  }
  const int result = files.remove_directory(path);
  if (result < 0 && result != -ENOENT) {
    throw StorageError(
        fmt::format("remove '{}': {}", path, std::generic_category().message(-result)));
  }
}

}  // namespace shoal
