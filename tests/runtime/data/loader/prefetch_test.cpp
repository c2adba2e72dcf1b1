#include "runtime/data/loader/prefetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

namespace shoal {
namespace {

/// Waits until `condition` holds, at most a minute.
template <class Condition>
bool eventually(const Condition& condition) {
  for (int i = 0; i < 60'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST(Prefetcher, GivesItemsInOrderAtAnyDepth) {
  for (int64_t depth = 0; depth <= 3; ++depth) {
    Prefetcher<int64_t> prefetcher([](int64_t index) { return index * index; }, 5, depth);
    for (int64_t i = 5; i < 40; ++i) EXPECT_EQ(prefetcher.next(), i * i);
  }
}

TEST(Prefetcher, NeverHoldsMoreThanDepthItems) {
  std::atomic<int64_t> made = 0;
  Prefetcher<int64_t> prefetcher([&](int64_t index) { return ++made, index; }, 0, 2);
  EXPECT_TRUE(eventually([&] { return made == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(made, 2);
  prefetcher.next();
  EXPECT_TRUE(eventually([&] { return made == 3; }));
}

TEST(Prefetcher, MakesNothingAheadAtDepthZero) {
  int64_t made = 0;
  Prefetcher<int64_t> prefetcher([&](int64_t index) { return ++made, index; }, 0, 0);
  EXPECT_EQ(made, 0);
  prefetcher.next();
  EXPECT_EQ(made, 1);
}

TEST(Prefetcher, HandsAnExceptionOverInItsPlace) {
  for (const int64_t depth : {0, 2}) {
    Prefetcher<int64_t> prefetcher(
        [](int64_t index) {
          if (index == 3) throw std::runtime_error("record 3");
          return index;
        },
        0, depth);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(prefetcher.next(), i);
    EXPECT_THROW(prefetcher.next(), std::runtime_error);
    EXPECT_THROW(prefetcher.next(), std::runtime_error);
  }
}

TEST(Prefetcher, StopsWhileFullWaitingOrUnused) {
  for (int round = 0; round < 50; ++round) {
    const int64_t depth = 1 + round % 3, taken = round % 5;
    int64_t made = 0;
    const auto alive = std::make_shared<int>();
    {
      Prefetcher<std::shared_ptr<int>> prefetcher([&](int64_t) { return ++made, alive; }, 0, depth);
      for (int64_t i = 0; i < taken; ++i) EXPECT_EQ(prefetcher.next(), alive);
    }
    // The thread is gone, and with it every item.
    EXPECT_LE(made, taken + depth);
    EXPECT_EQ(alive.use_count(), 1);
  }
}

}  // namespace
}  // namespace shoal
