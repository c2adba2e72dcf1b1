#include "runtime/base/signals.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <system_error>

#include "runtime/base/error.h"

namespace shoal {
namespace {

// A handler reaches no object; lock-free atomics are what it may touch.
std::atomic<int> first_signal{0}, num_insisting{0};
std::atomic<double> first_seconds{0}, grace_seconds{0};  ///< the first 0 without a signal
std::atomic<const char*> first_notice{nullptr};
std::atomic<bool> is_installed{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<double>::is_always_lock_free);
static_assert(std::atomic<const char*>::is_always_lock_free);

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

extern "C" void note_signal(int number) {
  double first = 0;
  const bool is_first = first_seconds.compare_exchange_strong(first, now_seconds());
  const bool insists = (number == SIGINT || number == SIGTERM) && num_insisting++ > 0;
  if (insists || (!is_first && StopSignals::is_grace_over())) _exit(128 + number);
  if (is_first) first_signal = number;
  const char* notice = first_notice;
  if (!is_first || notice == nullptr) return;
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
  first_signal = num_insisting = 0;
  first_seconds = 0;
  grace_seconds = 60;
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
    sigaction(kSignals[i], nullptr, &former_[i]);
    if (kSignals[i] == SIGHUP && former_[i].sa_handler == SIG_IGN) continue;
    sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &former_[i], nullptr);
  sigaltstack(&former_stack_, nullptr);
  first_notice = nullptr;
  is_installed = false;
}

int StopSignals::caught() { return first_signal; }

void StopSignals::set_grace(double seconds) { grace_seconds = seconds; }

bool StopSignals::is_grace_over() {
  return first_seconds != 0 && now_seconds() - first_seconds > grace_seconds;
}

const char* StopSignals::name_of(int signal) {
  if (signal == SIGINT) return "Ctrl-C";
  if (signal == SIGHUP) return "SIGHUP";
  if (signal == SIGXCPU) return "SIGXCPU";
  return signal == SIGTERM ? "SIGTERM" : "a signal";
}

void with_signals_blocked(const std::function<void()>& work) {
  sigset_t signals, former;
  sigemptyset(&signals);
  for (const int signal : StopSignals::kSignals) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, &former);
  const auto restore = [](const sigset_t* mask) { pthread_sigmask(SIG_SETMASK, mask, nullptr); };
  const std::unique_ptr<const sigset_t, decltype(restore)> guard(&former, restore);
  work();
}

std::thread start_thread(const std::string& what, const std::function<void()>& body) {
  std::thread thread;
  try {
    with_signals_blocked([&] { thread = std::thread(body); });
  } catch (const std::system_error& refused) {
    throw Error(ExitCode::kTopology,
                what + ": the system refuses a thread: " + refused.code().message(),
                "raise its limits (ulimit -u, ulimit -v), or start fewer ranks on this machine");
  }
  return thread;
}

}  // namespace shoal
