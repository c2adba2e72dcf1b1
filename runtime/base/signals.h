#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace shoal {

/// Notes INT, TERM, USR1, USR2, XCPU and, unless it was ignored (nohup), HUP instead of dying of
/// them, while it lives.
///
/// The first signal is kept for the step that looks, and told on standard error at once if there is
/// a notice. A second INT or TERM, and any signal later than the grace after the first, leaves the
/// process at once with exit code 128 + n, by _exit. The others may come again within the grace:
/// launchers send USR1 and USR2 ahead of TERM, and terminals that close and limits of CPU time
/// repeat theirs. At most one instance at a time (TORCH_CHECK). The destructor, on the thread of
/// the constructor, puts the former handlers back.
///
/// On this thread, the main one, handlers have a stack of their own: matrix products of oneDNN keep
/// their stack pointer in the heap, which the frame of a signal would overwrite. Other threads
/// block the signals.
class StopSignals {
 public:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU};
  /// `notice`: what is written when the first signal comes, lives as long as this; null: nothing.
  explicit StopSignals(const char* notice = nullptr);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The number of the first signal since the newest instance was made; 0 if none came.
  static int caught();
  /// Of the newest instance; 60 until it is set.
  static void set_grace(double seconds);
  /// Whether there was a signal, longer than the grace ago.
  static bool is_grace_over();
  /// "Ctrl-C", "SIGTERM"; of signals that launchers send in place of others "a signal".
  static const char* name_of(int signal);

 private:
  std::array<struct sigaction, kSignals.size()> former_;
  std::vector<std::byte> stack_;
  stack_t former_stack_;
};

/// With the signals of StopSignals blocked, for good on threads that `work` starts.
void with_signals_blocked(const std::function<void()>& work);
/// Such a thread. Where the system refuses it, throws Error (exit 11) that begins with `what`.
std::thread start_thread(const std::string& what, const std::function<void()>& body);

}  // namespace shoal
