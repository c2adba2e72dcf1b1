#include "parallel/checkpoint/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Staging, CopiesCpuTensorsIntoPageableMemoryThatIsReused) {
  Staging staging([](const std::string& text) { ADD_FAILURE() << text; },
                  [](int64_t) -> torch::Tensor { throw std::logic_error("pinned memory"); });
  staging.copy({{torch::arange(3), 0}, {torch::arange(4).view({2, 2}).t(), 32}}, 64);
  const char* memory = staging.wait();
  const auto* numbers = reinterpret_cast<const int64_t*>(memory);
  EXPECT_THAT(std::vector<int64_t>(numbers, numbers + 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(std::vector<int64_t>(numbers + 4, numbers + 8), ElementsAre(0, 2, 1, 3));
  staging.copy({{torch::arange(3) + 5, 0}}, 24);
  EXPECT_EQ(staging.wait(), memory);
  EXPECT_EQ(numbers[0], 5);
}

TEST(Staging, PinsNoMoreThanIsLeftForTheRank) {
  try {
    Staging::pinned_memory(33, 63);
    ADD_FAILURE() << "pinned";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("would pin 64 bytes, and 63 are left for this rank"));
  }
}

}  // namespace
}  // namespace shoal
