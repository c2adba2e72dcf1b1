#include "launch/runs/run_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <sstream>
#include <system_error>

#include "launch/job/launch_info.h"
#include "runtime/base/error.h"
#include "runtime/base/signals.h"
#include "runtime/files/data_file.h"

namespace shoal {
namespace {

constexpr int kMostAttempts = 100;  // each lost to a job that came or went meanwhile

/// Without the end of its line.
std::string read_line(const std::string& path) {
  const std::string text = text_of_file(path);
  return text.substr(0, text.find('\n'));
}

/// Start time of a process, field 22 of /proc/PID/stat; -1 if it does not exist or is a zombie, as
/// remain in containers without init. The second field may contain blanks and brackets.
int64_t start_ticks(int64_t pid) {
  const std::string stat = text_of_file(fmt::format("/proc/{}/stat", pid));
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

/// Watches another host's lock until its text changes or the time is over.
bool text_changes(const std::string& path, const std::string& text,
                  std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::min(timeout / 10, std::chrono::milliseconds(500)));
    if (text_of_file(path) != text) return true;
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

/// True if the file was last written before this machine was booted.
bool is_older_than_boot(const std::string& path) {
  timespec up{};
  struct stat file {};
  if (clock_gettime(CLOCK_BOOTTIME, &up) != 0 || ::stat(path.c_str(), &file) != 0) return false;
  return file.st_mtime < std::time(nullptr) - up.tv_sec;
}

/// True if the owner of the lock file is alive; nullopt if only its own host can tell.
std::optional<bool> is_alive(const LockOwner& owner, const LockOwner& self,
                             const std::string& path) {
  if (owner.shares_kernel_with(self))
    return owner.started >= 0 && start_ticks(owner.pid) == owner.started;
  if (owner.ran_before_reboot_of(self) && is_older_than_boot(path)) return false;
  return std::nullopt;
}

}  // namespace

LockOwner LockOwner::self() {
  LockOwner owner{host_name(), read_line("/proc/sys/kernel/random/boot_id"),
                  read_line("/etc/machine-id"), ::getpid(), 0};
  owner.started = start_ticks(owner.pid);
  return owner;
}

std::optional<LockOwner> LockOwner::parse(const std::string& text) {
  std::istringstream stream(text);
  LockOwner owner;
  std::string host, pid, started, boot, lease;
  stream >> host >> owner.host >> pid >> owner.pid >> started >> owner.started >> boot >>
      owner.boot >> lease;
  if (lease == "machine") stream >> owner.machine >> lease;
  if (!stream || host != "host" || pid != "pid" || started != "started" || boot != "boot" ||
      !lease.starts_with("lease")) {
    return std::nullopt;
  }
  return owner;
}

std::string LockOwner::text() const {
  const std::string on = machine.empty() ? "" : fmt::format("machine {}\n", machine);
  return fmt::format("host {}\npid {}\nstarted {}\nboot {}\n{}lease:", host, pid, started, boot,
                     on);
}

std::string LockOwner::describe() const {
  return fmt::format("process {} on host '{}'", pid, host);
}

bool LockOwner::shares_kernel_with(const LockOwner& other) const {
  return host == other.host && boot == other.boot;
}

// Two machines may share a host name, and container images a machine id.
bool LockOwner::ran_before_reboot_of(const LockOwner& other) const {
  return host == other.host && !machine.empty() && machine == other.machine && boot != other.boot;
}

std::optional<LockOwner> live_owner(const std::string& folder, const LockOwner& self) {
  const std::string path = folder + "/.lock";
  const std::optional<LockOwner> owner = LockOwner::parse(text_of_file(path));
  return owner && is_alive(*owner, self, path).value_or(true) ? owner : std::nullopt;
}

RunLock::RunLock(const std::string& folder, FileSystem& files, const Tell& tell,
                 const RunLockOptions& options)
    : files_(files), path_(folder + "/.lock"), options_(options) {
  for (int attempt = 0; !try_acquire(tell); ++attempt) {
    if (attempt == kMostAttempts) refuse(path_, "jobs that come and go");
  }
  try {
    lease_ = start_thread("the run folder's lock", [this] { extend_lease(); });
  } catch (...) {
    release();
    throw;
  }
}

RunLock::~RunLock() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  lease_.join();
  release();
}

// Removed while the kernel's lock is held: who opened the file before sees it gone and retries.
void RunLock::release() {
  if (is_same_file(file_, path_)) files_.remove_file(path_);
  files_.close(file_);
}

/// True if the owner of a lock that the kernel does not hold is still alive.
bool RunLock::is_there(const LockOwner& owner, const std::string& text, const Tell& tell) const {
  if (const auto known = is_alive(owner, options_.self(), path_)) return *known;
  tell(fmt::format("waiting up to {} to see whether {} still works in '{}'",
                   std::chrono::ceil<std::chrono::seconds>(options_.lease_timeout),
                   owner.describe(), parent_path(path_)));
  return text_changes(path_, text, options_.lease_timeout);
}

bool RunLock::try_acquire(const Tell& tell) {
  int file = files_.open(path_, FileSystem::Mode::kCreate);
  const bool created = file >= 0;
  if (file == -EEXIST) file = files_.open(path_, FileSystem::Mode::kAppend);
  if (file < 0) {
    throw StorageError(fmt::format("open '{}': {}", path_, std::generic_category().message(-file)));
  }
  const auto close = [this](const int* held) { files_.close(*held); };
  std::unique_ptr<int, decltype(close)> guard(&file, close);
  const bool is_held = ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  const std::string text = text_of_file(path_);
  const std::optional<LockOwner> owner = LockOwner::parse(text);
  if (is_held) refuse(path_, owner.has_value() ? owner->describe() : "another job that just began");
  if (!is_same_file(file, path_)) return false;
  if (owner.has_value() && !created) {
    if (is_there(*owner, text, tell)) refuse(path_, owner->describe());
    tell(fmt::format("taking over '{}' from {}, which is gone", path_, owner->describe()));
  }
  guard.release();
  file_ = file;
  write_owner();
  return true;
}

void RunLock::write_owner() {
  const std::string text = options_.self().text();
  const bool emptied = ::ftruncate(file_, 0) == 0;
  const int64_t written = emptied ? files_.write(file_, text.data(), text.size()) : -errno;
  if (written == std::ssize(text) && files_.sync(file_) == 0) return;
  files_.remove_file(path_);
  files_.close(file_);
  throw StorageError(
      fmt::format("write '{}': {}", path_,
                  written < 0 ? std::generic_category().message(static_cast<int>(-written))
                              : "the disk took a part of it"),
      "free some space on this disk, or choose another with run.root=…");
}

void RunLock::extend_lease() {
  std::unique_lock<std::mutex> lock(mutex_);
  // A full disk loses the lease, which matters to other hosts only, but does not end the run.
  while (!stop_.wait_for(lock, options_.lease_interval, [this] { return stopping_; })) {
    files_.write(file_, ".", 1);
  }
}

}  // namespace shoal
