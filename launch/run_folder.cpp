#include "launch/run_folder.h"

#include <fmt/format.h>

#include <filesystem>

#include "launch/run_lock.h"
#include "parallel/on_rank_zero.h"
#include "runtime/error.h"
#include "runtime/file_system.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

bool holds_a_run(const fs::path& path) { return fs::exists(path) && !fs::is_empty(path); }

fs::path first_free(const fs::path& path) {
  fs::path candidate = path;
  for (int64_t number = 2; holds_a_run(candidate); ++number) {
    candidate = fmt::format("{}-{}", path.string(), number);
  }
  return candidate;
}

// Removing the folder of a stranger would be unforgivable: only what looks like a run goes.
void remove_run(const fs::path& path) {
  const bool is_begun = fs::exists(path / "ckpt") && fs::exists(path / "log");
  if (!fs::exists(path / "resolved.yaml") && !is_begun) {
    throw ConfigError(fmt::format(
        "run.on_existing: '{}' does not look like a run folder, so overwrite leaves it alone; "
        "choose another run.name or remove it by hand",
        path.string()));
  }
  // Taken for a moment: throws if another job works in the folder.
  PosixFileSystem files;
  {
    const RunLock lock(path.string(), files, [](const std::string&) {});
  }
  fs::remove_all(path);
}

RunFolder decide(const fs::path& wanted, OnExisting policy) {
  RunFolder folder{wanted.string(), false};
  if (holds_a_run(wanted)) {
    switch (policy) {
      case OnExisting::kFail:
        throw ConfigError(fmt::format(
            "run.on_existing: '{}' exists already; continue it with run.on_existing=resume, start "
            "beside it with run.on_existing=new, or replace it with run.on_existing=overwrite",
            wanted.string()));
      case OnExisting::kResume:
        folder.resume = true;
        break;
      case OnExisting::kNew:
        folder.path = first_free(wanted).string();
        break;
      case OnExisting::kOverwrite:
        remove_run(wanted);
        break;
    }
  }
  fs::create_directories(folder.checkpoints());
  fs::create_directories(folder.logs());
  return folder;
}

}  // namespace

RunFolder open_run_folder(const std::string& root, const std::string& name, OnExisting policy,
                          Communicator& world) {
  constexpr char kResume = 'r', kBegin = 'b';
  const std::string decision = on_rank_zero(world, [&] {
    try {
      const RunFolder folder = decide(fs::path(root) / name, policy);
      return (folder.resume ? kResume : kBegin) + folder.path;
    } catch (const fs::filesystem_error& error) {
      throw StorageError(std::string("the run folder cannot be created: ") + error.what(),
                         "choose a writable folder with run.root=…");
    }
  });
  return {decision.substr(1), decision[0] == kResume};
}

}  // namespace shoal
