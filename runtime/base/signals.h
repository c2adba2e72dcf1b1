#pragma once

#include <array>
#include <csignal>

namespace shoal {

/// Notes INT, TERM, USR1 and USR2 instead of dying of them, while it lives.
///
/// The first signal is kept for the step that looks; a second one leaves the process at once with
/// exit code 128 + n, by _exit. At most one at a time (TORCH_CHECK). The destructor puts the former
/// handlers back.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The number of the first signal since the newest instance was made; 0 if none came.
  static int caught();

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
  std::array<struct sigaction, kSignals.size()> former_;
};

}  // namespace shoal
