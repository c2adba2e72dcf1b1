#include "models/blocks/recompute.h"

#include <gtest/gtest.h>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::some_numbers;

struct Passed {
  torch::Tensor y, auxiliary_loss, x_grad, weight_grad;
  int calls = 0;
};

Passed run(bool recomputes, bool has_loss) {
  Passed result;
  torch::Tensor x = some_numbers({3, 4}, 1).set_requires_grad(true);
  torch::Tensor weight = some_numbers({4, 4}, 2).set_requires_grad(true);
  const auto block = [&](const torch::Tensor& in) {
    ++result.calls;
    const torch::Tensor y = torch::mm(in, weight).tanh() + in;
    return BlockOutput{y, has_loss ? y.square().mean() : torch::Tensor(), {}};
  };
  const BlockOutput output = run_block(recomputes, x, block);
  torch::Tensor loss = (output.y * some_numbers({3, 4}, 3)).sum();
  if (has_loss) loss = loss + output.auxiliary_loss * 2;
  loss.backward();
  result.y = output.y.detach();
  if (has_loss) result.auxiliary_loss = output.auxiliary_loss.detach();
  result.x_grad = x.grad();
  result.weight_grad = weight.grad();
  return result;
}

TEST(Recompute, GivesTheSameBitsInASecondRun) {
  for (const bool has_loss : {false, true}) {
    const Passed kept = run(false, has_loss), again = run(true, has_loss);
    EXPECT_EQ(kept.calls, 1);
    EXPECT_EQ(again.calls, 2);
    EXPECT_TRUE(torch::equal(kept.y, again.y));
    EXPECT_TRUE(torch::equal(kept.x_grad, again.x_grad));
    EXPECT_TRUE(torch::equal(kept.weight_grad, again.weight_grad));
    EXPECT_EQ(again.auxiliary_loss.defined(), has_loss);
    if (has_loss) {
      EXPECT_TRUE(torch::equal(kept.auxiliary_loss, again.auxiliary_loss));
    }
  }
}

TEST(Recompute, RunsOnceWithoutGradients) {
  const torch::NoGradGuard no_grad;
  int calls = 0;
  run_block(true, torch::zeros({2}), [&](const torch::Tensor& x) {
    ++calls;
    return BlockOutput{x, {}, {}};
  });
  EXPECT_EQ(calls, 1);
}

TEST(Recompute, TrainsABlockBehindAFrozenOne) {
  const torch::Tensor x = some_numbers({3, 4}, 1);
  const torch::Tensor weight = some_numbers({4, 4}, 2).set_requires_grad(true);
  const auto block = [&](const torch::Tensor& in) {
    return BlockOutput{torch::mm(in, weight), {}, {}};
  };
  run_block(true, x, block).y.sum().backward();
  ASSERT_TRUE(weight.grad().defined());
  EXPECT_TRUE(torch::equal(weight.grad(), x.t().mm(torch::ones({3, 4}, x.options()))));
}

}  // namespace
}  // namespace shoal
