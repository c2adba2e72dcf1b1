#include "parallel/comm/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/base/error.h"
#include "tests/support/parallel_checks.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

using testing::parallel_checks;
using testing::ParallelCheck;
using testing::run_owning_ranks;
using testing::run_ranks;
using testing::wave;
using torch::Tensor;

class ParallelChecksRanks : public ::testing::TestWithParam<ParallelCheck> {};

TEST_P(ParallelChecksRanks, HoldOnOneToFourRanks) {
  for (const int64_t size : {1, 2, 3, 4}) {
    SCOPED_TRACE("size " + std::to_string(size));
    run_owning_ranks(size, GetParam().check);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ParallelChecksRanks, ::testing::ValuesIn(parallel_checks()),
                         [](const auto& info) { return info.param.name; });

/// One row from each rank to each.
RowCounts ones(const Communicator& comm) { return RowCounts(comm.size(), 1); }

TEST(CollectivesRanks, ExchangeOnceForwardAndOnceBackward) {
  for (const int64_t size : {1, 2}) {
    run_ranks(size, [](Communicator& world) {
      const Tensor x = wave({world.size(), 3}, world.rank()).set_requires_grad(true);
      const Tensor y = all_to_all(x, ones(world), ones(world), world);
      EXPECT_EQ(world.counters().all_to_all, world.size() > 1 ? 1 : 0);
      y.sum().backward();
      EXPECT_EQ(world.counters().all_to_all, world.size() > 1 ? 2 : 0);
      EXPECT_EQ(world.counters().all_reduce + world.counters().all_gather, 0);
    });
  }
}

TEST(CollectivesRanks, AGroupOfOneMakesNoCalls) {
  run_ranks(1, [](Communicator& world) {
    const Tensor x = wave({2, 3}, 0).set_requires_grad(true);
    EXPECT_TRUE(all_reduce_sum(x, world).is_same(x));
    EXPECT_TRUE(all_to_all(x, {2}, {2}, world).is_same(x));
    EXPECT_EQ(world.counters().all_reduce + world.counters().all_to_all, 0);
    EXPECT_THROW(all_to_all(x, {2}, {1}, world), c10::Error);
  });
}

TEST(CollectivesRanks, TakePartBackwardWhereTheInputNeedsNoGradient) {
  run_ranks(3, [](Communicator& world) {
    const bool is_constant = world.rank() == 1;
    const auto input = [&](int64_t rows) {
      return wave({rows, 2}, world.rank()).set_requires_grad(!is_constant);
    };
    const Tensor exchanged = input(3);
    const Tensor reduced = input(1);
    const Tensor loss = all_to_all(exchanged, ones(world), ones(world), world).sum() +
                        all_reduce_sum(reduced, world).sum();
    ASSERT_TRUE(loss.requires_grad());
    loss.backward();
    const Communicator::Counters& counters = world.counters();
    EXPECT_EQ(counters.all_to_all, 2);
    EXPECT_EQ(counters.all_reduce, 2);
    EXPECT_EQ(exchanged.grad().defined(), !is_constant);
    if (!is_constant) {
      EXPECT_TRUE(at::equal(reduced.grad(), at::full({1, 2}, 3.0, at::kDouble)));
    }
  });
}

TEST(CollectivesRanks, LeaveNoGraphWithoutGradMode) {
  run_ranks(2, [](Communicator& world) {
    torch::NoGradGuard no_grad;
    const Tensor x = wave({2, 2}, world.rank()).set_requires_grad(true);
    EXPECT_FALSE(all_to_all(x, ones(world), ones(world), world).requires_grad());
    EXPECT_FALSE(all_reduce_sum(x, world).requires_grad());
  });
}

TEST(CollectivesRanks, MoveIntegersAndStridedRows) {
  run_ranks(2, [](Communicator& world) {
    const Tensor ids = at::arange(4, at::kLong).reshape({2, 2}).add(10 * world.rank());
    const Tensor moved = all_to_all(ids.t(), ones(world), ones(world), world);
    EXPECT_FALSE(moved.requires_grad());
    const int64_t column = world.rank();
    EXPECT_TRUE(at::equal(
        moved, at::tensor({column, column + 2, column + 10, column + 12}, at::kLong).view({2, 2})));

    const Tensor x = wave({3, 2}, world.rank()).set_requires_grad(true);
    const Tensor y = all_to_all(x.t(), ones(world), ones(world), world);
    y.t().sum().backward();  // a gradient that is expanded, not contiguous
    EXPECT_TRUE(at::equal(x.grad(), at::ones_like(x)));
  });
}

TEST(CollectivesRanks, FreeTheirGraph) {
  run_ranks(2, [](Communicator& world) {
    std::weak_ptr<ExchangeState> state;
    {
      const Tensor x = wave({2, 2}, world.rank()).set_requires_grad(true);
      StartedExchange started = start_all_to_all(x, ones(world), ones(world), world);
      state = started.state;
      finish_all_to_all(std::move(started)).sum().backward();
    }
    EXPECT_TRUE(state.expired());
    {
      const Tensor x = wave({2, 2}, world.rank()).set_requires_grad(true);
      state = start_all_to_all(x, ones(world), ones(world), world).state;  // never finished
    }
    EXPECT_TRUE(state.expired());
  });
}

TEST(CollectivesRanks, RefuseMisuse) {
  run_ranks(2, [](Communicator& world) {
    const Tensor x = wave({2, 2}, world.rank()).set_requires_grad(true);
    StartedExchange started = start_all_to_all(x, ones(world), ones(world), world);
    const StartedExchange copy = started;
    const Tensor y = finish_all_to_all(std::move(started));
    EXPECT_THROW(finish_all_to_all(copy), c10::Error);
    EXPECT_THROW(start_all_to_all(x, {1}, {1}, world), c10::Error);
    EXPECT_THROW(all_to_all(x, {1, 2}, {1, 1}, world), c10::Error);
    EXPECT_THROW(torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true),
                 c10::Error);
  });
}

TEST(CollectivesRanks, AFailedPeerEndsABackwardPass) {
  const auto body = [](Communicator& world) {
    const Tensor x = wave({2, 2}, world.rank()).set_requires_grad(true);
    const Tensor y = all_to_all(x, ones(world), ones(world), world);
    if (world.rank() == 1) throw DataError("bad record");
    y.sum().backward();
  };
  EXPECT_THROW(run_ranks(2, body), DataError);
}

}  // namespace
}  // namespace shoal
