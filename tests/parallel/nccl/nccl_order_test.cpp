// The order of the calls of all groups, on streams that wait for each other as those of a GPU do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>

#include "parallel/comm/collectives.h"
#include "parallel/gradients/gradient_sync.h"
#include "parallel/gradients/optimizer_shards.h"
#include "parallel/nccl/nccl_communicator.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/forwarding_communicator.h"
#include "tests/support/parallel_checks.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::backend_of;
using testing::FakeNccl;
using testing::FakeSchedule;
using ::testing::HasSubstr;
using testing::make_parameter;
using testing::run_owning_ranks;
using torch::Tensor;

/// Makes a group's calls without waiting for them, as if a wait were forgotten.
class Hasty : public testing::ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  std::unique_ptr<Communicator> split(int64_t color, int64_t key, Traffic traffic) override {
    return std::make_unique<Hasty>(inner_.split(color, key, traffic));
  }
  Pending start_all_reduce(Tensor buffer, ReduceOp op) override {
    forgotten_.push_back(inner_.start_all_reduce(buffer, op));
    return {};
  }

 private:
  std::vector<Pending> forgotten_;
};

/// A step of training by hand: a stem, experts on other ranks between two exchanges, and a head.
/// With several ranks each sends its rows to the next, so that the experts' gradients need both.
struct ToyStep {
  bool has_experts = true;     ///< on this rank; their parameters are empty where there are none
  bool has_anchors = true;     ///< empty parameters stay in the graph
  bool shards = false;         ///< sums by reduce-scatter, and weights are gathered
  bool forgets_waits = false;  ///< for sums of gradients

  /// Gradients of the stem, the experts and the head, or what they are after a step of SGD.
  std::array<Tensor, 3> run(std::unique_ptr<Communicator> world) const {
    RankGrid grid = make_rank_grid(std::move(world), 2);
    if (forgets_waits) grid.world = std::make_unique<Hasty>(std::move(grid.world));
    const std::vector<int64_t> units =
        has_experts ? std::vector<int64_t>{grid.expert->rank()} : std::vector<int64_t>{};
    const Parameter stem = make_parameter("stem", {4}), head = make_parameter("head", {4}),
                    experts = make_parameter("experts.*.w", {4}, &units);
    GradientSync sync(group_parameters({stem, experts, head}, grid), *grid.world,
                      /*bucket_bytes=*/8, shards);
    std::unique_ptr<OptimizerShards> shard;
    if (shards) shard = std::make_unique<OptimizerShards>(sync);
    for (int step = 0; step < 2; ++step) {
      sync.zero_grad();
      sync.start_with_backward();
      loss(grid, {stem.tensor, experts.tensor, head.tensor}).backward();
      sync.reduce();
      if (!shards) continue;
      for (const Parameter& piece : shard->pieces()) {
        const torch::NoGradGuard no_grad;
        Tensor weights = piece.tensor;
        weights.sub_(piece.tensor.grad(), 0.125);
      }
      shard->gather_weights();
    }
    const auto result = [&](const Parameter& parameter) {
      return (shards ? parameter.tensor.detach() : parameter.tensor.grad()).clone();
    };
    return {result(stem), result(experts), result(head)};
  }

  Tensor loss(RankGrid& grid, const std::array<Tensor, 3>& weights) const {
    Communicator& expert = *grid.expert;
    const auto size = static_cast<size_t>(expert.size());
    const double rank = static_cast<double>(grid.world->rank());
    Tensor rows = (weights[0] + 1) * at::full({4, 4}, rank + 1, at::kDouble);
    for (int layer = 0; layer < 2; ++layer) {
      RowCounts send(size, 0), recv(size, 0);
      send[(static_cast<size_t>(expert.rank()) + 1) % size] = 4;
      recv[(static_cast<size_t>(expert.rank()) + size - 1) % size] = 4;
      Tensor there = all_to_all(rows, send, recv, expert);
      if (has_experts) {
        there = there * (weights[1][0] + 1);
      } else if (has_anchors) {
        there = there + weights[1].sum();
      }
      rows = all_to_all(there, recv, send, expert);
    }
    return (rows * (weights[2] + 1)).sum();
  }
};

/// What the job's first rank ends with over NCCL.
std::array<Tensor, 3> run_over_nccl(const ToyStep& step, const FakeSchedule& schedule = {}) {
  FakeNccl fake(schedule);
  std::array<Tensor, 3> result;
  run_owning_ranks(2, [&](std::unique_ptr<Communicator> control) {
    ToyStep own = step;
    own.has_experts = step.has_experts || control->rank() == 0;
    const bool is_first = control->rank() == 0;
    const std::array<Tensor, 3> ended =
        own.run(make_nccl_communicator(std::move(control), backend_of(fake.join())));
    if (is_first) result = ended;
  });
  return result;
}

std::array<Tensor, 3> run_over_threads(const ToyStep& step) {
  std::array<Tensor, 3> result;
  run_owning_ranks(2, [&](std::unique_ptr<Communicator> world) {
    const bool is_first = world->rank() == 0;
    const std::array<Tensor, 3> ended = step.run(std::move(world));
    if (is_first) result = ended;
  });
  return result;
}

bool are_equal(const std::array<Tensor, 3>& a, const std::array<Tensor, 3>& b) {
  return at::equal(a[0], b[0]) && at::equal(a[1], b[1]) && at::equal(a[2], b[2]);
}

/// Why a job ended, which takes less than a second.
std::string end_of(const std::function<void()>& job) {
  const auto start = std::chrono::steady_clock::now();
  try {
    job();
    return "well";
  } catch (const std::exception& error) {
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
    return error.what();
  }
}

TEST(NcclOrderRanks, TwoGroupsCallsThatAreSwappedOnOneRankAreFound) {
  FakeNccl fake;
  const auto job = [&] {
    run_owning_ranks(2, [&](std::unique_ptr<Communicator> control) {
      const auto world = make_nccl_communicator(std::move(control), backend_of(fake.join()));
      const auto exchange = world->split(0, world->rank(), Traffic::kExchange);
      const auto sums = world->split(0, world->rank(), Traffic::kGradients);
      const bool is_first = world->rank() == 0;
      Communicator& first = is_first ? *exchange : *sums;
      Communicator& second = is_first ? *sums : *exchange;
      Pending early = first.start_all_reduce(torch::ones({3}), ReduceOp::kSum);
      Pending late = second.start_all_reduce(torch::ones({3}), ReduceOp::kSum);
      early.wait();
      late.wait();
    });
  };
  EXPECT_THAT(end_of(job),
              AllOf(HasSubstr("calls of NCCL's wait for each other"),
                    HasSubstr("ncclAllReduce 3 of communicator 1"),
                    HasSubstr("ncclAllReduce 3 of communicator 2"),
                    HasSubstr("on stream exchange waits for"), HasSubstr("on stream gradients")));
}

TEST(NcclOrderRanks, AHostThatWaitsBeforeItMakesAPeersCallIsFound) {
  FakeNccl fake;
  const auto job = [&] {
    run_owning_ranks(2, [&](std::unique_ptr<Communicator> control) {
      const auto world = make_nccl_communicator(std::move(control), backend_of(fake.join()));
      const auto other = world->split(0, world->rank());
      for (Communicator* comm : {world->rank() == 0 ? world.get() : other.get(),
                                 world->rank() == 0 ? other.get() : world.get()}) {
        all_reduce(*comm, torch::ones({3}));
      }
    });
  };
  EXPECT_THAT(end_of(job), HasSubstr("calls of NCCL's wait for each other"));
}

TEST(NcclOrderRanks, ARankWithoutUnitsThatLeavesTheirParametersOutOfTheGraphIsFound) {
  const ToyStep with_anchors{.has_experts = false};
  EXPECT_EQ(end_of([&] { run_over_nccl(with_anchors); }), "well");
  const ToyStep without{.has_experts = false, .has_anchors = false};
  EXPECT_THAT(end_of([&] { run_over_nccl(without); }),
              AllOf(HasSubstr("calls of NCCL's wait for each other"), HasSubstr("gradients"),
                    HasSubstr("exchange")));
}

TEST(NcclOrderRanks, AForgottenWaitForASumOfGradientsIsFound) {
  const std::array<Tensor, 3> expected = run_over_threads({});
  EXPECT_TRUE(are_equal(run_over_nccl({}), expected));
  EXPECT_FALSE(are_equal(run_over_nccl({.forgets_waits = true}), expected));
}

/// Seeds of schedules: five, or as many as SHOAL_STREAM_SEEDS says.
int64_t num_seeds() {
  const char* const text = std::getenv("SHOAL_STREAM_SEEDS");
  return text == nullptr ? 5 : std::atoll(text);
}

TEST(NcclOrderRanks, AnyScheduleOfTheStreamsGivesTheSameBits) {
  for (const bool shards : {false, true}) {
    const ToyStep step{.shards = shards};
    const std::array<Tensor, 3> expected = run_over_threads(step);
    for (int64_t i = 1; i <= num_seeds(); ++i) {
      const FakeSchedule schedule{.seed = static_cast<uint64_t>(i), .overlaps = i % 2 == 0};
      EXPECT_TRUE(are_equal(run_over_nccl(step, schedule), expected))
          << "seed " << i << (shards ? ", sharded" : "");
    }
  }
}

}  // namespace
}  // namespace shoal
