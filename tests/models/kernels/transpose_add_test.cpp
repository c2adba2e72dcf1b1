#include "models/kernels/transpose_add.h"

#include <gtest/gtest.h>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::gradient_error;
using testing::some_numbers;

TEST(TransposeAdd, AddsTheTransposeOfEachImage) {
  // Sides above, at and below the kernel's blocks of 16.
  for (const auto& [S, C] : {std::pair{40, 23}, std::pair{16, 16}, std::pair{1, 5}}) {
    const torch::Tensor x = some_numbers({3, S, C}, 1), y = some_numbers({3, C, S}, 2);
    EXPECT_TRUE(torch::equal(transpose_add(x, y), x + y.transpose(1, 2)));
  }
}

TEST(TransposeAdd, GradientsAreThoseOfFiniteDifferences) {
  const torch::Tensor x = some_numbers({2, 17, 3}, 1).requires_grad_(),
                      y = some_numbers({2, 3, 17}, 2).requires_grad_();
  EXPECT_LT(gradient_error([&] { return transpose_add(x, y); }, {x, y}), 1e-6);
}

TEST(TransposeAdd, RefusesImagesThatDoNotFit) {
  EXPECT_THROW(transpose_add(some_numbers({2, 4, 3}, 1), some_numbers({2, 4, 3}, 1)), c10::Error);
}

}  // namespace
}  // namespace shoal
