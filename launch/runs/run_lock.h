#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/files/file_system.h"

namespace shoal {

/// The process that holds a lock, as written in the lock file.
struct LockOwner {
  std::string host;
  std::string boot;     ///< id of the boot in which the process runs
  std::string machine;  ///< from /etc/machine-id; may be empty
  int64_t pid = 0;
  int64_t started = 0;  ///< start time of the process, in clock ticks after boot

  static LockOwner self();
  /// Parses a lock file; nullopt if the text is invalid or incomplete.
  static std::optional<LockOwner> parse(const std::string& text);
  std::string text() const;
  std::string describe() const;  ///< "process 123 on host 'a'"
  /// True if both run on one host since the same boot, so that one can look for the other.
  bool shares_kernel_with(const LockOwner& other) const;
  /// True if both ran on one machine, which was rebooted in between.
  bool ran_before_reboot_of(const LockOwner& other) const;
};

/// Lease of a lock: its owner writes to the lock file from time to time to show that it is alive.
struct RunLockOptions {
  std::chrono::milliseconds lease_interval{10'000};
  std::chrono::milliseconds lease_timeout{45'000};  ///< time to watch another host's lock
  LockOwner (*self)() = LockOwner::self;            ///< the owner; replaceable in tests
};

/// Exclusive lock of a run folder for one job: a file `.lock` that names its owner, held from
/// construction to destruction.
///
/// The file is created exclusively and locked by the kernel, so a job that dies leaves no lock
/// behind on its own host. Where kernel locks do not work (other hosts, some network file systems),
/// the owner named in the file is examined. An owner on this host is alive if its process exists
/// and has the recorded start time, and dead if the machine was rebooted after the last write to
/// the file. An owner on another host is alive if the file grows, since owners append a byte each
/// lease_interval. A dead owner's lock is taken over.
class RunLock {
 public:
  using Tell = std::function<void(const std::string&)>;
  /// Throws Error (exit 15) with the owner's host and process if the folder is in use, StorageError
  /// if the file cannot be written. `tell` receives a line before another host's lock is watched,
  /// and when a lock is taken over.
  RunLock(const std::string& folder, FileSystem& files, const Tell& tell,
          const RunLockOptions& options = {});
  ~RunLock();

 private:
  FileSystem& files_;
  std::string path_;
  RunLockOptions options_;
  int file_ = -1;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread lease_;

  bool try_acquire(const Tell& tell);
  bool is_there(const LockOwner& owner, const std::string& text, const Tell& tell) const;
  void write_owner();
  void release();
  void extend_lease();
};

/// The owner of the folder's lock if it runs, or is of another host, of which nothing is known.
/// Changes nothing, so that no job that takes the lock meanwhile is refused.
std::optional<LockOwner> live_owner(const std::string& folder,
                                    const LockOwner& self = LockOwner::self());

}  // namespace shoal
