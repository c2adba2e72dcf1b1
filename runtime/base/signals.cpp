#include "runtime/base/signals.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <atomic>

namespace shoal {
namespace {

// A handler reaches no object; lock-free atomics are what it may touch.
std::atomic<int> first_signal{0};
std::atomic<bool> is_installed{false};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void note_signal(int number) {
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, number)) _exit(128 + number);
}

}  // namespace

StopSignals::StopSignals() {
  TORCH_CHECK(!is_installed.exchange(true), "StopSignals exists already");
  first_signal = 0;
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &former_[i]);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &former_[i], nullptr);
  is_installed = false;
}

int StopSignals::caught() { return first_signal; }

}  // namespace shoal
