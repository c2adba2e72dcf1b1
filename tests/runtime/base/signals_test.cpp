#include "runtime/base/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>

#include "runtime/base/error.h"
#include "tests/support/less_memory.h"

namespace shoal {
namespace {

using ::testing::ExitedWithCode;

void raise_all(std::initializer_list<int> numbers) {
  for (const int number : numbers) raise(number);
}

bool is_blocked(int number) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, number) == 1;
}

TEST(StopSignals, KeepsTheFirstAndPutsFormerHandlersBack) {
  struct sigaction before = {};
  sigaction(SIGUSR2, nullptr, &before);
  for (const int number : StopSignals::kSignals) {
    const StopSignals signals;
    EXPECT_EQ(signals.caught(), 0);
    raise(number);
    EXPECT_EQ(signals.caught(), number);
  }
  struct sigaction after = {};
  sigaction(SIGUSR2, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

TEST(StopSignals, AreAnnouncedAsOftenAsTheyLikeWithinTheGrace) {
  const StopSignals signals;
  raise_all({SIGUSR1, SIGUSR1, SIGUSR2, SIGHUP, SIGHUP, SIGXCPU, SIGXCPU});
  raise(SIGTERM);  // the first of its kind
  raise_all({SIGUSR1, SIGHUP, SIGXCPU});
  EXPECT_EQ(signals.caught(), SIGUSR1);
  EXPECT_FALSE(signals.is_grace_over());
}

TEST(StopSignalsDeathTest, ASecondIntOrTermLeavesAtOnce) {
  const auto leave = [](std::initializer_list<int> numbers) {
    const StopSignals signals;
    raise_all(numbers);
  };
  EXPECT_EXIT(leave({SIGTERM, SIGTERM}), ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EXIT(leave({SIGTERM, SIGINT}), ExitedWithCode(128 + SIGINT), "");
  EXPECT_EXIT(leave({SIGUSR1, SIGINT, SIGTERM}), ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EXIT(leave({SIGINT, SIGUSR1, SIGINT}), ExitedWithCode(128 + SIGINT), "");
}

TEST(StopSignalsDeathTest, AnySignalAfterTheGraceLeavesAtOnce) {
  const auto leave = [](int first, int second) {
    const StopSignals signals;
    signals.set_grace(0.02);
    raise(first);
    if (signals.is_grace_over()) _exit(1);
    usleep(40'000);
    if (!signals.is_grace_over()) _exit(2);
    raise(second);
  };
  EXPECT_EXIT(leave(SIGUSR1, SIGTERM), ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EXIT(leave(SIGUSR1, SIGUSR1), ExitedWithCode(128 + SIGUSR1), "");
  EXPECT_EXIT(leave(SIGTERM, SIGXCPU), ExitedWithCode(128 + SIGXCPU), "");
}

TEST(StopSignals, HaveNoGraceThatEndsBeforeTheFirst) {
  const StopSignals signals;
  signals.set_grace(0);
  EXPECT_FALSE(signals.is_grace_over());
}

TEST(StopSignals, LeaveHupIgnoredWhereItWas) {
  std::signal(SIGHUP, SIG_IGN);  // as nohup does
  {
    const StopSignals signals;
    raise(SIGHUP);
    EXPECT_EQ(signals.caught(), 0);
  }
  EXPECT_EQ(std::signal(SIGHUP, SIG_DFL), SIG_IGN);
}

TEST(StopSignalsDeathTest, ANoticeIsWrittenOnceWhenTheFirstSignalComes) {
  const auto notice = [](const char* text) {
    const StopSignals signals(text);
    raise_all({SIGUSR1, SIGINT});
    std::fputs("noted\n", stderr);
    raise(SIGINT);
  };
  EXPECT_EXIT(notice("stopping\n"), ExitedWithCode(128 + SIGINT), "^stopping\nnoted\n$");
  EXPECT_EXIT(notice(nullptr), ExitedWithCode(128 + SIGINT), "^noted\n$");
}

TEST(StopSignals, AreNamedAsTheUserKnowsThem) {
  EXPECT_STREQ(StopSignals::name_of(SIGINT), "Ctrl-C");
  EXPECT_STREQ(StopSignals::name_of(SIGTERM), "SIGTERM");
  EXPECT_STREQ(StopSignals::name_of(SIGHUP), "SIGHUP");
  EXPECT_STREQ(StopSignals::name_of(SIGXCPU), "SIGXCPU");
  EXPECT_STREQ(StopSignals::name_of(SIGUSR1), "a signal");
}

TEST(StopSignals, RefusesASecondInstance) {
  const StopSignals signals;
  EXPECT_THROW(StopSignals(), c10::Error);
}

TEST(StartThread, BlocksTheSignalsOnTheThreadAlone) {
  int blocked = 0;
  start_thread("a test", [&blocked] {
    for (const int number : StopSignals::kSignals) blocked += is_blocked(number) ? 1 : 0;
  }).join();
  EXPECT_EQ(blocked, static_cast<int>(StopSignals::kSignals.size()));
  for (const int number : StopSignals::kSignals) EXPECT_FALSE(is_blocked(number));
}

TEST(StartThreadDeathTest, SaysWhatTheSystemRefuses) {
  const auto refuse = [] {
    testing::allow_more_memory(1 << 16);
    try {
      for (int i = 0; i < 256; ++i) start_thread("the watch", [] { pause(); }).detach();
    } catch (const Error& error) {
      std::fputs((std::string(error.what()) + "; " + error.hint()).c_str(), stderr);
      const bool is_restored = !is_blocked(SIGTERM);
      _exit(is_restored ? static_cast<int>(error.code()) : 1);
    }
  };
  EXPECT_EXIT(refuse(), ExitedWithCode(11),
              "^the watch: the system refuses a thread: Resource temporarily .*ulimit -u");
}

}  // namespace
}  // namespace shoal
