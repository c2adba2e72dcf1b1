#include "runtime/base/signals.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace shoal {
namespace {

// A handler reaches no object; lock-free atomics are what it may touch.
std::atomic<int> first_signal{0};
std::atomic<const char*> first_notice{nullptr};
std::atomic<bool> is_installed{false};
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<const char*>::is_always_lock_free);

extern "C" void note_signal(int number) {
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, number)) _exit(128 + number);
  const char* notice = first_notice;
  if (notice == nullptr) return;
  const int error = errno;  // of what the signal interrupted
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, notice, std::strlen(notice));
  errno = error;
}

/// Bytes of a stack for handlers: _SC_SIGSTKSZ counts the registers of this CPU.
size_t signal_stack_size() {
  constexpr long kPlenty = 1 << 16;
  return static_cast<size_t>(std::max(kPlenty, sysconf(_SC_SIGSTKSZ)));
}

}  // namespace

StopSignals::StopSignals(const char* notice) : stack_(signal_stack_size()) {
  TORCH_CHECK(!is_installed.exchange(true), "StopSignals exists already");
  first_signal = 0;
  first_notice = notice;
  stack_t stack = {};
  stack.ss_sp = stack_.data();
  stack.ss_size = stack_.size();
  TORCH_CHECK(sigaltstack(&stack, &former_stack_) == 0, "sigaltstack refused a stack of ",
              stack_.size(), " bytes");
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &former_[i]);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &former_[i], nullptr);
  sigaltstack(&former_stack_, nullptr);
  first_notice = nullptr;
  is_installed = false;
}

int StopSignals::caught() { return first_signal; }

const char* StopSignals::name_of(int signal) {
  if (signal == SIGINT) return "Ctrl-C";
  return signal == SIGTERM ? "SIGTERM" : "a signal";
}

}  // namespace shoal
