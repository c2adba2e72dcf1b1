#include "models/blocks/recompute.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/comm/collectives.h"
#include "parallel/gradients/optimizer_shards.h"
#include "runtime/module/module.h"
#include "tests/moe/routers/router_fixture.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

namespace shoal {
namespace {

using testing::run_grid;
using testing::some_numbers;

/// y = tanh(x W) + x with the mean square of y as auxiliary loss.
struct SmallBlock : ModuleBase {
  explicit SmallBlock(int64_t seed) {
    weight = add_parameter("weight", {4, 4}, torch::kDouble, Init::zeros());
    const torch::NoGradGuard no_grad;
    weight.copy_(some_numbers({4, 4}, seed));
  }
  BlockOutput forward(const torch::Tensor& x, bool has_loss) {
    ++calls;
    torch::Tensor y = torch::mm(x, weight).tanh() + x;
    if (comm != nullptr) y = y + all_reduce_sum(y * 0.1, *comm);
    return {y, has_loss ? y.square().mean() : torch::Tensor(), {}};
  }
  BlockOutput run(bool recomputes, const torch::Tensor& x, bool has_loss = false) {
    return run_block(recomputes, *this, x,
                     [this, has_loss](const torch::Tensor& in) { return forward(in, has_loss); });
  }
  torch::Tensor weight;
  Communicator* comm = nullptr;  ///< if set, ranks add up a tenth of their outputs
  int calls = 0;
};

struct Passed {
  torch::Tensor y, auxiliary_loss, x_grad, weight_grad;
  int calls = 0;
};

Passed run(bool recomputes, bool has_loss) {
  SmallBlock block(2);
  torch::Tensor x = some_numbers({3, 4}, 1).set_requires_grad(true);
  const BlockOutput output = block.run(recomputes, x, has_loss);
  torch::Tensor loss = (output.y * some_numbers({3, 4}, 3)).sum();
  if (has_loss) loss = loss + output.auxiliary_loss * 2;
  loss.backward();
  return {output.y.detach(), has_loss ? output.auxiliary_loss.detach() : torch::Tensor(), x.grad(),
          block.weight.grad(), block.calls};
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

// L6: three tokens for unit 0 recomputed, then four and two for the others. Counted twice, unit 0
// would have the most.
TEST(Recompute, ARouterCountsItsChoicesOnce) {
  const auto router = testing::identity_router(
      "{name: sigmoid, k: 1, weights: {normalise: none}, bias: {rate: 1}}", 3);
  const auto tokens = [](const std::vector<int64_t>& unit_T) {
    return torch::one_hot(torch::tensor(unit_T), 3).to(torch::kFloat64);
  };
  const auto block = [&](const torch::Tensor& x) {
    return BlockOutput{testing::route_all(*router, x).weight_TK, {}, {}};
  };
  run_block(/*recomputes=*/true, *router, tokens({0, 0, 0}), block).y.sum().backward();
  run_block(/*recomputes=*/false, *router, tokens({1, 1, 1, 1, 2, 2}), block).y.sum().backward();
  router->after_step(*make_self_communicator());
  EXPECT_TRUE(torch::equal(router->buffers()[0], torch::tensor({0.0, -1.0, 1.0}, torch::kFloat64)));
}

TEST(Recompute, RunsOnceWithoutGradients) {
  SmallBlock block(2);
  {
    const torch::NoGradGuard no_grad;
    block.run(true, torch::zeros({2, 4}, torch::kDouble));
  }
  EXPECT_EQ(block.calls, 1);
  block.weight.set_requires_grad(false);
  bool saw_gradients = false;
  run_block(true, block, torch::zeros({2, 4}, torch::kDouble), [&](const torch::Tensor& x) {
    saw_gradients = at::GradMode::is_enabled();  // by which routers know that this run counts
    return block.forward(x, false);
  });
  EXPECT_TRUE(saw_gradients);
}

TEST(Recompute, TrainsABlockBehindAFrozenOne) {
  const torch::Tensor x = some_numbers({3, 4}, 1);
  SmallBlock block(2);
  run_block(true, block, x,
            [&](const torch::Tensor& in) {
              return BlockOutput{torch::mm(in, block.weight), {}, {}};
            })
      .y.sum()
      .backward();
  ASSERT_TRUE(block.weight.grad().defined());
  EXPECT_TRUE(torch::equal(block.weight.grad(), x.t().mm(torch::ones({3, 4}, x.options()))));
}

TEST(Recompute, PassesGradientsThroughAFrozenBlock) {
  SmallBlock block(2);
  block.weight.set_requires_grad(false);
  const auto gradient = [&block](bool recomputes) {
    const torch::Tensor x = some_numbers({3, 4}, 1).set_requires_grad(true);
    block.run(recomputes, x).y.sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(torch::equal(gradient(true), gradient(false)));
  EXPECT_FALSE(block.weight.grad().defined());
}

TEST(Recompute, RefusesAParameterOfAnotherModule) {
  SmallBlock block(2), other(3);
  const torch::Tensor y =
      run_block(true, block, some_numbers({3, 4}, 1), [&](const torch::Tensor& x) {
        return BlockOutput{torch::mm(torch::mm(x, block.weight), other.weight), {}, {}};
      }).y;
  EXPECT_THROW(y.sum().backward(), c10::Error);
}

/// Two views of one input, each through a, b and a again: three runs and more add to one gradient.
torch::Tensor loss_of_views(SmallBlock& a, SmallBlock& b, bool recomputes, int64_t rank) {
  torch::Tensor loss = torch::zeros({}, torch::kDouble);
  for (const int64_t view : {1, 2}) {
    BlockOutput output = a.run(recomputes, some_numbers({3, 4}, 10 * rank + view), true);
    loss = loss + output.auxiliary_loss;
    output = a.run(recomputes, b.run(recomputes, output.y).y, true);
    loss = loss + output.auxiliary_loss + (output.y * some_numbers({3, 4}, view)).sum();
  }
  return loss;
}

struct SharedCase {
  bool overlaps, shards;
};

/// The summed gradients that this rank holds, of two blocks used several times in a step.
std::vector<torch::Tensor> shared_gradients(RankGrid& grid, bool recomputes,
                                            const SharedCase& test) {
  SmallBlock a(4), b(5);
  a.comm = &grid.tensor_world();
  std::vector<Parameter> parameters = parameters_of(a, "a");
  for (const Parameter& parameter : parameters_of(b, "b")) parameters.push_back(parameter);
  GradientSync sync(group_parameters(parameters, grid), *grid.world, /*bucket_bytes=*/8,
                    test.shards);
  const auto shards = test.shards ? std::make_unique<OptimizerShards>(sync) : nullptr;
  sync.zero_grad();
  for (const int64_t micro : {0, 1}) {
    const torch::Tensor loss = loss_of_views(a, b, recomputes, 2 * grid.world->rank() + micro);
    if (test.overlaps && micro == 1) sync.start_with_backward();
    loss.backward();
  }
  if (test.overlaps) {
    EXPECT_EQ(sync.num_started(), std::ssize(sync.buckets()));
  }
  sync.reduce();
  std::vector<torch::Tensor> gradients;
  for (const Parameter& held : shards ? shards->pieces() : parameters) {
    gradients.push_back(held.tensor.grad().clone());
  }
  return gradients;
}

TEST(RecomputeRanks, ABlockThatRunsSeveralTimesHasTheGradientsOfOneThatKeepsActivations) {
  for (const int64_t ranks : {1, 2}) {
    for (const SharedCase& test : {SharedCase{false, false}, SharedCase{true, false},
                                   SharedCase{false, true}, SharedCase{true, true}}) {
      SCOPED_TRACE(
          fmt::format("{} ranks, overlaps {}, shards {}", ranks, test.overlaps, test.shards));
      run_grid(1, ranks, [&test](RankGrid& grid) {
        const auto kept = shared_gradients(grid, false, test);
        const auto again = shared_gradients(grid, true, test);
        ASSERT_EQ(kept.size(), again.size());
        for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(torch::equal(kept[i], again[i])) << i;
      });
    }
  }
}

}  // namespace
}  // namespace shoal
