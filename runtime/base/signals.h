#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace shoal {

/// While it lives, records INT, TERM, USR1, USR2, XCPU and, unless it was ignored (nohup), HUP,
/// instead of letting them end the process.
///
/// The first signal is kept for caught(), and `notice`, if any, is written to standard error at
/// once. A second INT or TERM, and any signal later than the grace period after the first, ends the
/// process at once with exit code 128 + n, by _exit. The other signals may repeat within the grace
/// period: launchers send USR1 and USR2 ahead of TERM, and terminals that close and limits of CPU
/// time repeat theirs. At most one instance at a time (TORCH_CHECK). The destructor, on the
/// constructor's thread, restores the former handlers.
///
/// Handlers on this thread, the main one, use a stack of their own: matrix products of oneDNN keep
/// their stack pointer in the heap, which a signal's frame would overwrite. Other threads block the
/// signals.
class StopSignals {
 public:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU};
  /// `notice`: written when the first signal comes, must outlive this object; null: nothing.
  explicit StopSignals(const char* notice = nullptr);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The number of the first signal since the newest instance was made; 0 if none came.
  static int caught();
  /// Sets the grace period of the newest instance; 60 until then.
  static void set_grace(double seconds);
  /// True if a signal came longer ago than the grace period.
  static bool is_grace_over();
  /// "Ctrl-C", "SIGTERM"; "a signal" for signals that launchers send in place of others.
  static const char* name_of(int signal);

 private:
  std::array<struct sigaction, kSignals.size()> former_;
  std::vector<std::byte> stack_;
  stack_t former_stack_;
};

/// Calls `work` with the signals of StopSignals blocked; threads that it starts keep them blocked.
void with_signals_blocked(const std::function<void()>& work);
/// Starts a thread with these signals blocked. Throws Error (exit 11), beginning with `what`, if
/// the system refuses it.
std::thread start_thread(const std::string& what, const std::function<void()>& body);

}  // namespace shoal
