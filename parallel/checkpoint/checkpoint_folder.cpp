#include "parallel/checkpoint/checkpoint_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <system_error>

#include "runtime/base/error.h"

namespace shoal {
namespace {

constexpr char kStepPrefix[] = "step-";
constexpr char kSavePrefix[] = ".tmp-step-";
constexpr char kRemovalPrefix[] = ".old-step-";

bool is_folder(const std::string& path) { return kind_of(path) == PathKind::kFolder; }

std::optional<double> score_of(const std::string& path) {
  try {
    return parse_manifest(read_manifest_text(path), path).score;
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

/// Steps with a score, the best first, the earliest of equals first.
std::vector<int64_t> steps_by_score(const std::string& folder) {
  std::vector<std::pair<double, int64_t>> scored;
  for (const int64_t step : list_checkpoints(folder)) {
    const std::optional<double> score = score_of(folder + "/" + step_folder(step));
    if (score.has_value() && *score == *score) scored.emplace_back(-*score, step);
  }
  std::sort(scored.begin(), scored.end());
  std::vector<int64_t> steps;
  for (const auto& [score, step] : scored) steps.push_back(step);
  return steps;
}

void check_call(const char* call, const std::string& path, int result) {
  if (result < 0 && result != -ENOENT) {
    throw StorageError(
        fmt::format("{} '{}': {}", call, path, std::generic_category().message(-result)));
  }
}

/// Renamed first, so that no part of a checkpoint ever has a checkpoint's name.
void remove_checkpoint(FileSystem& files, const std::string& folder, int64_t step) {
  const std::string doomed = fmt::format("{}/.old-{}", folder, step_folder(step));
  rename_path(files, folder + "/" + step_folder(step), doomed);
  remove_folder(files, doomed);
}

}  // namespace

std::string step_folder(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::optional<int64_t> parse_step_folder(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  int64_t step = 0;
  const size_t digits = std::string_view(kStepPrefix).size();
  std::from_chars(name.data() + digits, name.data() + name.size(), step);
  // Other spellings, and what is no number, are not what step_folder writes.
  if (step < 0 || step_folder(step) != name) return std::nullopt;
  return step;
}

bool is_checkpoint_entry(const std::string& name, bool is_folder) {
  return is_folder && (parse_step_folder(name).has_value() || name.starts_with(kSavePrefix) ||
                       name.starts_with(kRemovalPrefix));
}

std::vector<int64_t> list_checkpoints(const std::string& folder) {
  std::vector<int64_t> steps;
  if (!is_folder(folder)) return steps;
  for (const std::string& name : UntrustedFolder(folder).names()) {
    const std::optional<int64_t> step = parse_step_folder(name);
    if (step.has_value() && is_folder(folder + "/" + name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::string> find_best(const std::string& folder) {
  const std::vector<int64_t> steps = steps_by_score(folder);
  if (steps.empty()) return std::nullopt;
  return folder + "/" + step_folder(steps.front());
}

std::string resolve_checkpoint(const std::string& given, bool best) {
  const std::string path = given.substr(0, given.find_last_not_of('/') + 1);
  for (const std::string& folder : {path + "/ckpt", path}) {
    const std::vector<int64_t> steps = list_checkpoints(folder);
    if (steps.empty()) continue;
    if (!best) return folder + "/" + step_folder(steps.back());
    const std::optional<std::string> found = find_best(folder);
    if (found.has_value()) return *found;
    throw CheckpointError(fmt::format("no checkpoint in '{}' has a score", folder),
                          "the best is known once an evaluation ran at a checkpoint's step");
  }
  if (is_folder(path + "/ckpt")) {
    throw CheckpointError(fmt::format("'{}/ckpt' holds no checkpoint", path));
  }
  return path;
}

std::vector<std::string> list_checkpoint_paths(const std::string& path) {
  for (const std::string& folder : {path + "/ckpt", path}) {
    std::vector<std::string> paths;
    for (const int64_t step : list_checkpoints(folder)) {
      paths.push_back(folder + "/" + step_folder(step));
    }
    if (!paths.empty()) return paths;
  }
  return {resolve_checkpoint(path)};
}

void remove_old_checkpoints(FileSystem& files, const std::string& folder,
                            const Retention& retention) {
  std::vector<int64_t> steps = list_checkpoints(folder);
  // An earlier attempt has left later steps, before the run went back to a lower one.
  for (; !steps.empty() && steps.back() > retention.newest; steps.pop_back()) {
    remove_checkpoint(files, folder, steps.back());
  }
  std::set<int64_t> kept;
  const auto num_last = std::min<size_t>(
      steps.size(), static_cast<size_t>(std::max<int64_t>(1, retention.keep_last)));
  kept.insert(steps.end() - static_cast<std::ptrdiff_t>(num_last), steps.end());
  if (num_last < steps.size() && retention.keep_best > 0) {
    const std::vector<int64_t> best = steps_by_score(folder);
    for (size_t i = 0; i < best.size() && i < static_cast<size_t>(retention.keep_best); ++i) {
      kept.insert(best[i]);
    }
  }
  for (const int64_t step : steps) {
    if (kept.contains(step) || step == retention.never_remove) continue;
    remove_checkpoint(files, folder, step);
  }
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
  if (!is_folder(path)) return;
  for (const std::string& name : UntrustedFolder(path).names()) {
    check_call("remove", path + "/" + name, files.remove_file(path + "/" + name));
  }
  check_call("remove", path, files.remove_directory(path));
}

}  // namespace shoal
