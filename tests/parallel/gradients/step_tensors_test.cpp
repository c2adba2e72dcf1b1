#include "parallel/gradients/step_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/ranks.h"

namespace shoal {
namespace {

TEST(StepTensorsRanks, FindsOneBitOnOneRank) {
  testing::run_ranks(3, [](Communicator& world) {
    const torch::Tensor mask = torch::ones({40}, torch::kBool);
    EXPECT_NO_THROW(require_equal_replicas(mask, world, "masks"));
    if (world.rank() == 1) mask[17] = false;
    try {
      require_equal_replicas(mask, world, "w: masks differ");
      ADD_FAILURE() << "not found on rank " << world.rank();
    } catch (const CommError& error) {
      EXPECT_STREQ(error.what(), "w: masks differ");
    }
  });
}

}  // namespace
}  // namespace shoal
