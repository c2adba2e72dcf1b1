#include "runtime/data/loader/worker_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/less_memory.h"

namespace shoal {
namespace {

TEST(WorkerPool, DoesEachItemOnce) {
  for (const int64_t workers : {1, 2, 5}) {
    WorkerPool pool(workers);
    for (const int64_t count : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(count));
      pool.for_each(count, [&](int64_t i) { ++done[static_cast<size_t>(i)]; });
      for (const auto& times : done) EXPECT_EQ(times.load(), 1);
    }
  }
}

TEST(WorkerPoolDeathTest, EndsItsThreadsWhereTheSystemRefusesOne) {
  const auto start = [](bool may_be_fewer) {
    testing::allow_more_memory(int64_t{1} << 28);
    try {
      WorkerPool pool(256, may_be_fewer);
      std::atomic<int> sum = 0;
      pool.for_each(100, [&](int64_t) { ++sum; });
      _exit(sum == 100 && pool.size() < 256 ? 0 : 1);
    } catch (const Error& error) {
      _exit(static_cast<int>(error.code()));
    }
  };
  EXPECT_EXIT(start(true), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(start(false), ::testing::ExitedWithCode(11), "");
}

TEST(WorkerPool, RethrowsTheFailureOfTheLowestItemAndGoesOn) {
  for (const int64_t workers : {1, 4}) {
    WorkerPool pool(workers);
    for (int round = 0; round < 20; ++round) {
      try {
        pool.for_each(50, [](int64_t i) {
          if (i % 7 == 5) throw std::runtime_error(std::to_string(i));
        });
        ADD_FAILURE() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "5");
      }
      std::atomic<int> sum = 0;
      pool.for_each(4, [&](int64_t i) { sum += static_cast<int>(i); });
      EXPECT_EQ(sum.load(), 6);
    }
  }
}

}  // namespace
}  // namespace shoal
