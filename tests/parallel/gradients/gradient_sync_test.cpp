#include "parallel/gradients/gradient_sync.h"

#include <gtest/gtest.h>

#include "tests/support/parallel_checks.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

using testing::make_parameter;
using testing::run_owning_ranks;
using testing::wave;
using torch::Tensor;

/// All-reduces and reduce-scatters of gradients since construction.
int64_t calls_of(const GradientSync& sync) {
  int64_t calls = 0;
  for (const Communicator* replicas : sync.communicators()) {
    calls += replicas->counters().all_reduce + replicas->counters().reduce_scatter;
  }
  return calls;
}

TEST(ParameterGroup, SplitsByReplicasAndLeavesOutWhatIsNotTrained) {
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  const std::vector<int64_t> units{0, 1};
  Parameter frozen = make_parameter("frozen", {2});
  frozen.tensor.set_requires_grad(false);
  const auto groups =
      group_parameters({make_parameter("a", {2}), frozen, make_parameter("e.*.w", {2}, &units),
                        make_parameter("b", {2})},
                       grid);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].replicas, grid.world.get());
  ASSERT_EQ(groups[0].parameters.size(), 2u);
  EXPECT_EQ(groups[0].parameters[1].name, "b");
  EXPECT_EQ(groups[1].replicas, grid.replica.get());
  ASSERT_EQ(groups[1].parameters.size(), 1u);
  EXPECT_EQ(groups[1].parameters[0].name, "e.*.w");
  EXPECT_EQ(group_parameters({frozen}, grid).size(), 0u);
}

TEST(GradientSync, GradientsStayViewsOverBackwardPassesAndSync) {
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  const Parameter a = make_parameter("a", {3, 2});
  const Parameter b = make_parameter("b", {5});
  GradientSync sync(group_parameters({a, b}, grid), *grid.world);
  EXPECT_EQ(sync.buckets().size(), 1u);
  sync.zero_grad();
  const void* data = a.tensor.grad().data_ptr();
  for (int micro = 0; micro < 2; ++micro) {
    (a.tensor.t() * wave({2, 3}, micro)).sum().backward();
  }
  sync.reduce();
  EXPECT_EQ(a.tensor.grad().data_ptr(), data);
  EXPECT_TRUE(at::equal(a.tensor.grad(), (wave({2, 3}, 0) + wave({2, 3}, 1)).t()));
  EXPECT_TRUE(at::equal(b.tensor.grad(), at::zeros({5}, at::kDouble)));

  sync.scale(0.5);
  EXPECT_TRUE(at::equal(a.tensor.grad(), (wave({2, 3}, 0) + wave({2, 3}, 1)).t() * 0.5));
  sync.zero_grad();
  EXPECT_EQ(a.tensor.grad().data_ptr(), data);
  EXPECT_EQ(a.tensor.grad().abs().sum().item<double>(), 0.0);
  EXPECT_EQ(calls_of(sync), 0) << "a group of one made calls";
}

TEST(GradientSyncRanks, CountsMissingGradientsAsZeroAndAdoptsForeignOnes) {
  run_owning_ranks(2, [](std::unique_ptr<Communicator> world) {
    RankGrid grid = make_rank_grid(std::move(world), 1);
    const Parameter a = make_parameter("a", {3});
    const Parameter b = make_parameter("b", {2});
    GradientSync sync(group_parameters({a, b}, grid), *grid.world);
    sync.zero_grad();
    // On rank 0, a's gradient was dropped and b's replaced; rank 1 reaches a only.
    if (grid.world->rank() == 0) {
      a.tensor.mutable_grad() = Tensor();
      b.tensor.mutable_grad() = at::full({2}, 4.0, at::kDouble);
    } else {
      (a.tensor * 3).sum().backward();
    }
    sync.reduce();
    EXPECT_TRUE(at::equal(a.tensor.grad(), at::full({3}, 3.0, at::kDouble)));
    EXPECT_TRUE(at::equal(b.tensor.grad(), at::full({2}, 4.0, at::kDouble)));
  });
}

TEST(GradientSyncRanks, MakesOneCallABucketAndNoneForGroupsOfOne) {
  run_owning_ranks(2, [](std::unique_ptr<Communicator> world) {
    RankGrid grid = make_rank_grid(std::move(world), 2);
    const std::vector<int64_t> units{grid.expert->rank()};
    const std::vector<Parameter> parameters{make_parameter("a", {4}), make_parameter("b", {4}),
                                            make_parameter("c", {4}),
                                            make_parameter("e.*.w", {4}, &units)};
    GradientSync sync(group_parameters(parameters, grid), *grid.world, 64);  // two of four doubles
    EXPECT_EQ(sync.buckets().size(), 3u);
    sync.zero_grad();
    EXPECT_EQ(calls_of(sync), 0);
    sync.reduce();
    EXPECT_EQ(calls_of(sync), 2);
    ASSERT_EQ(sync.communicators().size(), 2u);
    EXPECT_EQ(sync.communicators()[1]->size(), 1);
    EXPECT_EQ(sync.communicators()[1]->counters().all_reduce, 0);
  });
}

TEST(GradientSyncRanks, BucketsHaveEqualBordersWhereStacksAreUneven) {
  // 2 x 2 ranks; expert rank 0 holds units 0 to 2, expert rank 1 holds none of the first layer and
  // one of the second.
  run_owning_ranks(4, [](std::unique_ptr<Communicator> world) {
    RankGrid grid = make_rank_grid(std::move(world), 2);
    const bool is_first = grid.expert->rank() == 0;
    const std::vector<int64_t> front =
        is_first ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{};
    const std::vector<int64_t> back =
        is_first ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{3};
    const std::vector<Parameter> parameters{make_parameter("x.*.w", {2}, &front),
                                            make_parameter("y.*.w", {2}, &back)};
    GradientSync sync(group_parameters(parameters, grid), *grid.world, 64);
    EXPECT_EQ(sync.buckets().size(), 2u);
    sync.zero_grad();
    for (const Parameter& parameter : parameters) {
      (parameter.tensor * static_cast<double>(grid.replica->rank() + 1)).sum().backward();
    }
    sync.reduce();
    EXPECT_EQ(calls_of(sync), 2);
    for (const Parameter& parameter : parameters) {
      EXPECT_TRUE(at::equal(parameter.tensor.grad(), at::full_like(parameter.tensor, 3.0)));
    }
  });
}

/// Two buckets of one parameter each; b is registered last, so its bucket is the first.
struct TwoBuckets {
  explicit TwoBuckets(RankGrid& grid)
      : sync(group_parameters({a, b}, grid), *grid.world, /*bucket_bytes=*/8) {
    sync.zero_grad();
  }
  Parameter a = make_parameter("a", {3});
  Parameter b = make_parameter("b", {3});
  GradientSync sync;
};

TEST(GradientSyncRanks, StartsBucketsInOneOrderWhileTheBackwardPassRuns) {
  run_owning_ranks(2, [](std::unique_ptr<Communicator> world) {
    RankGrid grid = make_rank_grid(std::move(world), 1);
    const double rank = static_cast<double>(grid.world->rank());
    TwoBuckets early(grid), late(grid), stuck(grid);

    early.sync.start_with_backward();
    // b's gradient comes first, being used last; a's bucket has not started by then.
    const torch::Tensor x = early.a.tensor * (rank + 1);
    x.register_hook([&](const torch::Tensor&) { EXPECT_EQ(early.sync.num_started(), 1); });
    (x.detach() * early.b.tensor).sum().backward();
    (x * 2).sum().backward();
    EXPECT_EQ(early.sync.num_started(), 2);
    early.sync.reduce();
    EXPECT_EQ(calls_of(early.sync), 2);

    const torch::Tensor y = late.a.tensor * (rank + 1);
    (y.detach() * late.b.tensor).sum().backward();
    (y * 2).sum().backward();
    EXPECT_EQ(late.sync.num_started(), 0);
    late.sync.reduce();
    EXPECT_TRUE(at::equal(early.a.tensor.grad(), late.a.tensor.grad()));
    EXPECT_TRUE(at::equal(early.b.tensor.grad(), late.b.tensor.grad()));
    EXPECT_TRUE(at::equal(early.a.tensor.grad(), at::full({3}, 6.0, at::kDouble)));

    // A rank that never reaches b keeps a's bucket until the end, and the order stays.
    stuck.sync.start_with_backward();
    (stuck.a.tensor * 1).sum().backward();
    EXPECT_EQ(stuck.sync.num_started(), 0);
    stuck.sync.reduce();
    EXPECT_TRUE(at::equal(stuck.a.tensor.grad(), at::full({3}, 2.0, at::kDouble)));
  });
}

TEST(GradientSyncRanks, StartsTheExpertsOfTheLastLayerBeforeTheStem) {
  run_owning_ranks(2, [](std::unique_ptr<Communicator> world) {
    RankGrid grid = make_rank_grid(std::move(world), 1);
    const std::vector<int64_t> units{0, 1};
    const Parameter stem = make_parameter("stem", {3});
    const Parameter experts = make_parameter("e.*.w", {3}, &units);
    const Parameter head = make_parameter("head", {3});
    GradientSync sync(group_parameters({stem, experts, head}, grid), *grid.world, 8);
    ASSERT_EQ(sync.buckets().size(), 3u);
    std::vector<std::string> order;
    for (const auto& bucket : sync.buckets()) order.push_back(bucket.slots[0].parameter.name);
    EXPECT_EQ(order, (std::vector<std::string>{"head", "e.*.w", "stem"}));
    sync.zero_grad();
    sync.start_with_backward();
    (head.tensor * 2).sum().backward();
    (experts.tensor * 2).sum().backward();
    EXPECT_EQ(sync.num_started(), 2);
    sync.reduce();
    EXPECT_TRUE(at::equal(experts.tensor.grad(), at::full({2, 3}, 4.0, at::kDouble)));
  });
}

TEST(GradientSync, RefusesAGradientThatGrowsAfterItsSumBegan) {
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  TwoBuckets buckets(grid);
  buckets.sync.start_with_backward();
  (buckets.b.tensor * 2).sum().backward();
  EXPECT_THROW((buckets.b.tensor * 2).sum().backward(), c10::Error);
}

TEST(GradientSync, RefusesATensorThatIsThereTwice) {
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  const Parameter a = make_parameter("a", {3});
  EXPECT_THROW(GradientSync(group_parameters({a, a}, grid), *grid.world), c10::Error);
}

}  // namespace
}  // namespace shoal
