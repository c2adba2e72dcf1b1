#include <gtest/gtest.h>

#include <string>

#include "sparse/sparse_model.h"
#include "tests/support/counted_memory.h"
#include "tests/support/session_in_training.h"

namespace shoal {
namespace {

using testing::SessionInTraining;

/// What a training of learned permutations holds less after the step in which they become hard.
struct Hardening {
  explicit Hardening(int64_t groups) {
    testing::CountedMemory memory;
    SessionInTraining run(
        {testing::vit(), "data.prefetch=0",
         "sparsity={density: 0.5, layers: [mlp], rule: {name: static}, permutation: {name: "
         "learned, until: 60%, groups: " +
             std::to_string(groups) + "}}"});
    for (const SparseLayerInfo& layer : run.session.model().sparse->describe()) {
      predicted_bytes += layer.soft_bytes;
    }
    for (const auto& permutation : run.session.model().sparse->forms().permutations) {
      index_bytes += 2 * permutation->place().size() * int64_t{sizeof(int64_t)};
    }
    run.session.step({});
    run.session.step({});
    const int64_t soft_bytes = memory.held_bytes();
    EXPECT_TRUE(run.session.model().sparse->forms().permutations[0]->is_soft());
    run.session.step({});
    EXPECT_FALSE(run.session.model().sparse->forms().permutations[0]->is_soft());
    freed_bytes = soft_bytes - memory.held_bytes();
  }

  int64_t predicted_bytes = 0;  ///< check's: the matrices, their gradients and Adam's two
  int64_t index_bytes = 0;      ///< of the hard ones: the order and its inverse
  int64_t freed_bytes = 0;
};

// Between steps there are no gradients: three of the four copies.
TEST(PermutationMemory, OfSoftOnesIsAsPredictedAndGoneWhenHard) {
  const Hardening whole(1);
  EXPECT_EQ(whole.predicted_bytes, 2 * 4 * (8 * 8 + 12 * 12) * 8);
  EXPECT_EQ(whole.freed_bytes, whole.predicted_bytes / 4 * 3 - whole.index_bytes);
}

TEST(PermutationMemory, FallsByTheNumberOfGroups) {
  const Hardening whole(1), grouped(4);
  EXPECT_EQ(whole.predicted_bytes, 4 * grouped.predicted_bytes);
  EXPECT_EQ(whole.freed_bytes + whole.index_bytes, 4 * (grouped.freed_bytes + grouped.index_bytes));
}

}  // namespace
}  // namespace shoal
