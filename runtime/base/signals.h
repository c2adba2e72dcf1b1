#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace shoal {

/// Catches the signals that ask a training to stop, so that it can save a checkpoint first. While
/// an object lives, INT, TERM, USR1, USR2, XCPU and, unless it was ignored (nohup), HUP are
/// recorded instead of ending the process.
///
/// The first signal is kept for caught(), and `notice`, if any, is written to standard error at
/// once. A second INT or TERM, and any signal later than the grace period after the first, ends the
/// process at once with exit code 128 + its number, by _exit. The other signals may repeat within
/// the grace period: launchers send USR1 and USR2 ahead of TERM, closing terminals repeat HUP, and
/// CPU time limits repeat XCPU. At most one instance at a time (TORCH_CHECK).
///
/// Construct and destroy it on the main thread. Start other threads by start_thread, which blocks
/// these signals in the new thread. Handlers run on a stack of their own: oneDNN's matrix products
/// point the stack register into the heap, where a signal's frame would overwrite their data. The
/// destructor restores the former handlers.
class StopSignals {
 public:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU};
  /// `notice`: text for the first signal; must outlive this object. Null: nothing is written.
  explicit StopSignals(const char* notice = nullptr);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The number of the first signal since the newest instance was made; 0 if none came.
  static int caught();
  /// Sets the grace period of the newest instance, in seconds; 60 by default.
  static void set_grace(double seconds);
  /// True if the first signal came longer ago than the grace period.
  static bool is_grace_over();
  /// Returns the signal's name for messages, "Ctrl-C" or "SIGTERM"; "a signal" for USR1 and USR2,
  /// into which launchers translate other signals.
  static const char* name_of(int signal);

 private:
  std::array<struct sigaction, kSignals.size()> former_;
  std::vector<std::byte> stack_;
  stack_t former_stack_;
};

/// Calls `work` with these signals blocked; threads that `work` starts keep them blocked.
void with_signals_blocked(const std::function<void()>& work);
/// Starts a thread with these signals blocked. Throws Error (exit 11) if the system refuses it; the
/// message begins with `what`, the purpose of the thread.
std::thread start_thread(const std::string& what, const std::function<void()>& body);

}  // namespace shoal
