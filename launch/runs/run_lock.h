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

/// The holder of a lock, as text in its file.
struct LockOwner {
  std::string host;
  std::string boot;     ///< identifies the kernel that runs the process
  std::string machine;  ///< from /etc/machine-id; may be empty
  int64_t pid = 0;
  int64_t started = 0;  ///< start time of the process, in clock ticks after boot

  static LockOwner self();
  /// Nothing if the text is malformed or incomplete.
  static std::optional<LockOwner> parse(const std::string& text);
  std::string text() const;
  std::string describe() const;  ///< "process 123 on host 'a'"
  /// True if both ran on one machine that was restarted in between.
  bool ran_before_reboot_of(const LockOwner& other) const;
};

/// Lease times of a lock.
struct RunLockOptions {
  std::chrono::milliseconds lease_interval{10'000};
  std::chrono::milliseconds lease_timeout{45'000};  ///< how long to watch another host's lock
  LockOwner (*self)() = LockOwner::self;            ///< returns the holder; replaced in tests
};

/// Reserves a run folder for one job: a file `.lock` in it that names its owner, held from
/// construction to destruction.
///
/// The file is created exclusively and locked by the kernel, so that a job that dies leaves no lock
/// on its own host. Where the kernel's lock is not visible (another host, some network file
/// systems), the text decides: an owner on this host is alive if its process exists and started at
/// the time written, and gone if the machine was restarted since and the file is older; one on
/// another host is alive if the file grows, to which its owner adds a byte every lease_interval. A
/// lock whose owner is gone is taken over.
class RunLock {
 public:
  using Tell = std::function<void(const std::string&)>;
  /// Throws Error (exit 15) naming the owner's host and process if the folder is in use,
  /// StorageError if the file cannot be written. `tell` receives a line when another host's lock
  /// has to be watched, and one when a lock is taken over.
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

}  // namespace shoal
