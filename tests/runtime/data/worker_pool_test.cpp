#include "runtime/data/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

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
