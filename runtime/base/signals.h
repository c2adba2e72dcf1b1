#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <vector>

namespace shoal {

/// Notes INT, TERM, USR1 and USR2 instead of dying of them, while it lives.
///
/// The first signal is kept for the step that looks, and told on standard error at once if there is
/// a notice; a second one leaves the process at once with exit code 128 + n, by _exit. At most one
/// at a time (TORCH_CHECK). The destructor, on the thread of the constructor, puts the former
/// handlers back.
///
/// On this thread, the main one, handlers have a stack of their own: matrix products of oneDNN keep
/// their stack pointer in the heap, which the frame of a signal would overwrite.
class StopSignals {
 public:
  /// `notice`: what is written when the first signal comes, lives as long as this; null: nothing.
  explicit StopSignals(const char* notice = nullptr);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The number of the first signal since the newest instance was made; 0 if none came.
  static int caught();
  /// "Ctrl-C", "SIGTERM"; of signals that launchers send in place of others "a signal".
  static const char* name_of(int signal);

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
  std::array<struct sigaction, kSignals.size()> former_;
  std::vector<std::byte> stack_;
  stack_t former_stack_;
};

}  // namespace shoal
