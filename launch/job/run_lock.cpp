#include "launch/job/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "launch/job/launch_info.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/error.h"

namespace shoal {
namespace {

constexpr int kMostAttempts = 100;  // each lost to a job that came or went meanwhile

std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// Field 22 of /proc/PID/stat; -1 if there is no such process, or a dead one that its parent has
/// not buried, as those of a container without an init stay. The second field may hold blanks and
/// brackets.
int64_t start_ticks(int64_t pid) {
  const std::string stat = read_text(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return -1;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string state, skipped;
  fields >> state;
  if (state == "Z" || state == "X") return -1;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  int64_t ticks = -1;
  fields >> ticks;
  return fields ? ticks : -1;
}

bool is_same_file(int file, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(file, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

/// Watches a lock of another host until its text changes or the time is over.
bool text_changes(const std::string& path, const std::string& text,
                  std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::min(timeout / 10, std::chrono::milliseconds(500)));
    if (read_text(path) != text) return true;
  }
  return false;
}

[[noreturn]] void refuse(const std::string& path, const std::string& owner) {
  throw Error(ExitCode::kBusy,
              fmt::format("run folder '{}' is in use by {}", parent_path(path), owner),
              fmt::format("wait for that job, or choose another run.name; if it is gone for "
                          "certain, remove '{}'",
                          path));
}

}  // namespace

LockOwner LockOwner::self() {
  LockOwner owner{host_name(), read_text("/proc/sys/kernel/random/boot_id"), ::getpid(), 0};
  while (!owner.boot.empty() && owner.boot.back() == '\n') owner.boot.pop_back();
  owner.started = start_ticks(owner.pid);
  return owner;
}

std::optional<LockOwner> LockOwner::parse(const std::string& text) {
  std::istringstream stream(text);
  LockOwner owner;
  std::string host, pid, started, boot, lease;
  stream >> host >> owner.host >> pid >> owner.pid >> started >> owner.started >> boot >>
      owner.boot >> lease;
  if (!stream || host != "host" || pid != "pid" || started != "started" || boot != "boot" ||
      !lease.starts_with("lease")) {
    return std::nullopt;
  }
  return owner;
}

std::string LockOwner::text() const {
  return fmt::format("host {}\npid {}\nstarted {}\nboot {}\nlease:", host, pid, started, boot);
}

std::string LockOwner::describe() const {
  return fmt::format("process {} on host '{}'", pid, host);
}

bool LockOwner::is_on_this_host() const {
  const LockOwner here = self();
  return host == here.host && boot == here.boot;
}

bool LockOwner::is_alive() const { return started >= 0 && start_ticks(pid) == started; }

RunLock::RunLock(const std::string& folder, FileSystem& files,
                 const std::function<void(const std::string&)>& warn)
    : RunLock(folder, files, warn, Options{}) {}

RunLock::RunLock(const std::string& folder, FileSystem& files,
                 const std::function<void(const std::string&)>& warn, const Options& options)
    : files_(files), path_(folder + "/.lock") {
  for (int attempt = 0; !try_acquire(warn, options); ++attempt) {
    if (attempt == kMostAttempts) refuse(path_, "jobs that come and go");
  }
  lease_ = std::thread([this, interval = options.lease_interval] { extend_lease(interval); });
}

RunLock::~RunLock() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  lease_.join();
  // Removed while the kernel's lock is held: who opened the file before finds it gone and retries.
  if (is_same_file(file_, path_)) files_.remove_file(path_);
  files_.close(file_);
}

bool RunLock::try_acquire(const std::function<void(const std::string&)>& warn,
                          const Options& options) {
  int file = files_.open(path_, FileSystem::Mode::kCreate);
  const bool created = file >= 0;
  if (file == -EEXIST) file = files_.open(path_, FileSystem::Mode::kAppend);
  if (file < 0) {
    throw StorageError(fmt::format("open '{}': {}", path_, std::generic_category().message(-file)));
  }
  const auto close = [this](const int* held) { files_.close(*held); };
  std::unique_ptr<int, decltype(close)> guard(&file, close);
  const bool is_held = ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  const std::string text = read_text(path_);
  const std::optional<LockOwner> owner = LockOwner::parse(text);
  if (is_held) refuse(path_, owner.has_value() ? owner->describe() : "another job that just began");
  if (!is_same_file(file, path_)) return false;
  if (owner.has_value() && !created) {
    const bool lives = owner->is_on_this_host() ? owner->is_alive()
                                                : text_changes(path_, text, options.lease_timeout);
    if (lives) refuse(path_, owner->describe());
    warn(fmt::format("taking over '{}' from {}, which is gone", path_, owner->describe()));
  }
  guard.release();
  file_ = file;
  write_owner();
  return true;
}

void RunLock::write_owner() {
  const std::string text = LockOwner::self().text();
  const bool emptied = ::ftruncate(file_, 0) == 0;
  const int64_t written = emptied ? files_.write(file_, text.data(), text.size()) : -errno;
  if (written == static_cast<int64_t>(text.size()) && files_.sync(file_) == 0) return;
  files_.remove_file(path_);
  files_.close(file_);
  throw StorageError(
      fmt::format("write '{}': {}", path_,
                  written < 0 ? std::generic_category().message(static_cast<int>(-written))
                              : "the disk took a part of it"),
      "free some space on this disk, or choose another with run.root=…");
}

void RunLock::extend_lease(std::chrono::milliseconds interval) {
  std::unique_lock<std::mutex> lock(mutex_);
  // A full disk costs the lease, which only other hosts look at, and not the run.
  while (!stop_.wait_for(lock, interval, [this] { return stopping_; })) {
    files_.write(file_, ".", 1);
  }
}

std::unique_ptr<RunLock> lock_run_folder(const std::string& folder, Communicator& world,
                                         FileSystem& files,
                                         const std::function<void(const std::string&)>& warn) {
  std::unique_ptr<RunLock> lock;
  on_rank_zero(world, [&] {
    lock = std::make_unique<RunLock>(folder, files, warn);
    return std::string();
  });
  return lock;
}

}  // namespace shoal
