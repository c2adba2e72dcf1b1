#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "parallel/checkpoint/staging.h"
#include "tests/support/emulated_gpu/device.h"

namespace emulated_gpu {
namespace {

// Planted: the bytes of a save are read without its wait, as a writer would that had lost it.
TEST(EmulatedGpu, ASaveThatDoesNotWaitForItsCopiesReadsOtherBytes) {
  torch::Tensor memory;
  shoal::Staging staging(
      [](const std::string& text) { ADD_FAILURE() << text; },
      [&](int64_t bytes) { return memory = torch::zeros({bytes}, torch::kByte); });
  const torch::Tensor values = torch::arange(10);
  staging.copy({{values.to(kDevice), 0}}, 80);
  EXPECT_FALSE(memory.view(torch::kLong).equal(values));
  staging.wait();
  EXPECT_TRUE(memory.view(torch::kLong).equal(values));
}

}  // namespace
}  // namespace emulated_gpu
