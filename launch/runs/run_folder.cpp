#include "launch/runs/run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/records/event_file.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr std::array kFiles{"resolved.yaml",  "env.json",      "summary.json", "metrics.jsonl",
                            "metrics.csv",    "experts.jsonl", "gates.jsonl",  "permutations.jsonl",
                            "pictures.png",   "report.html",   "LATEST",       ".lock",
                            "confusion.json", "layers.jsonl"};

std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  if (!fs::is_directory(folder)) return entries;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) entries.push_back(entry);
  std::ranges::sort(entries);
  return entries;
}

/// True for a temporary file that replace_file leaves behind if its process dies.
bool is_temporary_of(const std::string& file, const std::string& name) {
  return name.starts_with(file + ".") && name.ends_with(".tmp");
}

/// True for rank-00012.log and the like, with five digits or more.
bool is_rank_log(const std::string& name) {
  return matches_glob(name, "rank-?????*.log") &&
         name.find_first_not_of("0123456789", 5) == name.size() - 4;
}

bool is_ours(const std::string& folder, const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  if (folder == "ckpt") return is_checkpoint_entry(name, entry.is_directory());
  return !entry.is_directory() && (folder == "tb" ? is_event_file(name) : is_rank_log(name));
}

/// Lists files in the folder, up to two levels deep, that a run does not write.
std::vector<std::string> strangers_in(const fs::path& path) {
  std::vector<std::string> strangers;
  for (const fs::directory_entry& entry : entries_of(path)) {
    const std::string name = entry.path().filename().string();
    const bool is_folder = entry.is_directory();
    if (is_folder && (name == "ckpt" || name == "log" || name == "tb")) {
      for (const fs::directory_entry& inner : entries_of(entry.path())) {
        if (!is_ours(name, inner))
          strangers.push_back(name + "/" + inner.path().filename().string());
      }
    } else if (is_folder || !is_run_file(name)) {
      strangers.push_back(name);
    }
  }
  return strangers;
}

/// True if a start failed before it wrote records: the folder only has logs and a lock.
bool is_failed_start(const fs::path& path) {
  if (!fs::is_directory(path)) return false;
  for (const fs::directory_entry& entry : entries_of(path)) {
    const std::string name = entry.path().filename().string();
    if (name != "log" && name != "ckpt" && name != ".lock" && !name.ends_with(".tmp")) return false;
  }
  return entries_of(path / "ckpt").empty() && strangers_in(path).empty();
}

bool is_taken(const fs::path& path) { return fs::exists(path) && !fs::is_empty(path); }

fs::path first_free(const fs::path& path) {
  fs::path candidate = path;
  for (int64_t number = 2; is_taken(candidate); ++number) {
    candidate = fmt::format("{}-{}", path.string(), number);
  }
  return candidate;
}

/// Called under the run's lock. Only a report's temporary file may belong to a live process.
void remove_temporary_files(const fs::path& path) {
  std::vector<fs::directory_entry> entries = entries_of(path);
  std::ranges::move(entries_of(path / "ckpt"), std::back_inserter(entries));  // LATEST's
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    const bool is_left = std::ranges::any_of(kFiles, [&name](const std::string& file) {
      return file != "report.html" && is_temporary_of(file, name);
    });
    std::error_code ignored;
    if (is_left && entry.is_regular_file()) fs::remove(entry.path(), ignored);
  }
}

/// Renames records of a run without a checkpoint, which a start at step 0 would overwrite. Tells
/// so, or that there is no run.
void keep_records(const RunFolder& folder, FileSystem& files,
                  const std::function<void(const std::string&)>& tell) {
  // fs::exists throws if the folder exists but cannot be read.
  if (fs::exists(folder.checkpoints()) && !list_checkpoints(folder.checkpoints()).empty()) return;
  std::vector<std::string> records(kFiles.begin(), kFiles.end());
  std::erase_if(records,
                [&](auto name) { return name == ".lock" || !fs::exists(folder.file(name)); });
  if (records.empty()) {
    return tell(fmt::format("no run to resume in '{}' (run.root, run.name): starting a new one{}",
                            folder.path, did_you_mean_path(folder.path)));
  }
  int64_t attempt = 1;
  const auto kept = [&](const std::string& name) {
    return fmt::format("{}{}{}", folder.file(name), kAttempt, attempt);
  };
  while (std::ranges::any_of(kFiles, [&](auto name) { return fs::exists(kept(name)); })) ++attempt;
  for (const std::string& name : records) rename_path(files, folder.file(name), kept(name));
  tell(fmt::format("no checkpoint in '{}' to resume from: starting anew, its records are *{}{}",
                   folder.path, kAttempt, attempt));
}

/// Chooses the folder, and whether to resume; changes nothing.
RunFolder choose(const fs::path& wanted, OnExisting policy) {
  RunFolder folder{wanted.string()};
  if (!is_taken(wanted)) return folder;
  if (policy == OnExisting::kFail && !is_failed_start(wanted)) {
    throw ConfigError(fmt::format(
        "run.on_existing: '{}' exists already; continue it with run.on_existing=resume, start "
        "beside it with run.on_existing=new, or replace it with run.on_existing=overwrite",
        folder.path));
  }
  folder.resume = policy == OnExisting::kResume;
  if (policy == OnExisting::kNew) folder.path = first_free(wanted).string();
  const std::string reason = policy == OnExisting::kOverwrite ? why_not_a_run(wanted) : "";
  if (reason.empty()) return folder;
  throw ConfigError(fmt::format(
      "run.on_existing: '{}' {}, so overwrite leaves it alone; choose another run.name or remove "
      "it by hand",
      folder.path, reason));
}

RunFolder open_alone(const std::string& wanted, OnExisting policy, FileSystem& files,
                     const std::function<void(const std::string&)>& tell) {
  RunFolder folder = choose(wanted, policy);
  fs::create_directories(folder.path);
  folder.lock = std::make_shared<const RunLock>(folder.path, files, tell);
  // Another job may have used the folder and died while this one waited for the lock.
  const bool holds_a_run = !is_failed_start(folder.path);
  if (holds_a_run && policy != OnExisting::kNew) {
    folder.resume = choose(folder.path, policy).resume;
  }
  if (policy == OnExisting::kResume) keep_records(folder, files, tell);
  if (policy == OnExisting::kOverwrite) remove_run(files, folder.path);
  remove_temporary_files(folder.path);
  fs::create_directories(folder.checkpoints());
  fs::create_directories(folder.logs());
  return folder;
}

/// Calls `work` on rank 0 and returns its text on every rank.
std::string decide(Communicator& world, const std::function<std::string()>& work) {
  return on_rank_zero(world, [&] {
    try {
      return work();
    } catch (const fs::filesystem_error& error) {
      throw StorageError(std::string("the run folder cannot be created: ") + error.what(),
                         "choose a writable folder with run.root=…");
    }
  });
}

}  // namespace

bool is_run_file(const std::string& name) {
  return std::ranges::any_of(kFiles, [&name](const std::string& file) {
    return name == file || is_temporary_of(file, name) ||
           name.starts_with(file + std::string(kAttempt));
  });
}

void check_run_folder(const std::string& path, OnExisting policy, Communicator& world) {
  decide(world, [&] { return choose(path, policy).path; });
}

std::string did_you_mean_path(const std::string& given) {
  const fs::path path = given.substr(0, given.find_last_not_of('/') + 1);
  const fs::path folder = path.parent_path(), below_root = RunOptions().root / path;
  if (path.is_relative() && fs::exists(below_root))
    return did_you_mean(below_root.string(), {below_root});
  if (!folder.empty() && !fs::exists(folder)) return did_you_mean_path(folder);
  std::vector<std::string> others;
  for (const auto& entry : entries_of(folder / ".")) {
    if (entry.path().filename() != path.filename())
      others.push_back(folder / entry.path().filename());
  }
  return did_you_mean(path.string(), others);
}

void require_path(const std::string& path) {
  if (kind_of(path) != PathKind::kNothing) return;
  throw Error(
      ExitCode::kUsage, "'" + path + "' does not exist" + did_you_mean_path(path),
      "name a run, <run.root>/<run.name>, such as runs/quickstart; `shoal runs` lists them");
}

std::string why_not_a_run(const std::string& folder) {
  constexpr size_t kMostNamed = 5;
  const fs::path path(folder);
  if (is_failed_start(path)) return "";
  const bool is_begun = fs::exists(path / "ckpt") && fs::exists(path / "log");
  if (!fs::exists(path / "resolved.yaml") && !is_begun) return "does not look like a run folder";
  std::vector<std::string> strangers = strangers_in(path);
  if (strangers.empty()) return "";
  const size_t num_more = strangers.size() - std::min(strangers.size(), kMostNamed);
  strangers.resize(strangers.size() - num_more);
  return fmt::format("holds what no run wrote: {}{}", fmt::join(strangers, ", "),
                     num_more > 0 ? fmt::format(" and {} more", num_more) : "");
}

// resolved.yaml goes last: without it an interrupted removal would leave no run's folder.
void remove_run(FileSystem& files, const std::string& path) {
  for (const fs::directory_entry& entry : entries_of(path)) {
    const std::string name = entry.path().filename().string();
    if (name != ".lock" && name != "resolved.yaml") remove_folder(files, entry.path());
  }
  remove_folder(files, path + "/resolved.yaml");
}

std::string run_path(const RunOptions& run) { return (fs::path(run.root) / run.name).string(); }

RunFolder open_run_folder(const std::string& path, OnExisting policy, Communicator& world,
                          FileSystem& files, const std::function<void(const std::string&)>& tell) {
  constexpr char kResume = 'r', kBegin = 'b';
  RunFolder folder;
  const std::string decision = decide(world, [&] {
    folder = open_alone(path, policy, files, tell);
    return (folder.resume ? kResume : kBegin) + folder.path;
  });
  return {decision.substr(1), decision[0] == kResume, std::move(folder.lock)};
}

}  // namespace shoal
