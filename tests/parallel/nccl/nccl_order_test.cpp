// The order of the calls of all groups, on streams that wait for each other as those of a GPU do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

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

using Tensors = std::vector<Tensor>;

/// Two steps of training by hand. In each of two layers rows go through a gate, to the experts of
/// the next rank, and back; a head follows. Gradients are summed while the backward pass runs.
struct ToyTraining {
  bool has_experts = true;     ///< on all ranks; else on the first alone, others' are empty
  bool has_anchors = true;     ///< empty parameters stay in the graph
  bool shards = false;         ///< sums by reduce-scatter, and weights are gathered
  bool forgets_waits = false;  ///< for sums of gradients

  /// Gradients of all parameters or, with `shards`, the weights after steps of SGD.
  Tensors run(std::unique_ptr<Communicator> world) const {
    RankGrid grid = make_rank_grid(std::move(world), 2);
    if (forgets_waits) grid.world = std::make_unique<Hasty>(std::move(grid.world));
    const bool has_own = has_experts || grid.expert->rank() == 0;
    const std::vector<int64_t> units =
        has_own ? std::vector<int64_t>{grid.expert->rank()} : std::vector<int64_t>{};
    std::vector<Parameter> parameters;
    for (const char* layer : {"0", "1"}) {
      parameters.push_back(make_parameter(std::string("gate.") + layer, {4}));
      parameters.push_back(make_parameter(std::string("experts.*.w.") + layer, {4}, &units));
    }
    parameters.push_back(make_parameter("head", {4}));
    GradientSync sync(group_parameters(parameters, grid), *grid.world, /*bucket_bytes=*/8, shards);
    std::unique_ptr<OptimizerShards> optimizer;
    if (shards) optimizer = std::make_unique<OptimizerShards>(sync);
    for (int step = 0; step < 2; ++step) {
      sync.zero_grad();
      sync.start_with_backward();
      loss(grid, parameters).backward();
      sync.reduce();
      if (shards) update(*optimizer);
    }
    Tensors result;
    for (const Parameter& parameter : parameters) {
      const Tensor& tensor = parameter.tensor;
      result.push_back((shards ? tensor.detach() : tensor.grad()).clone());
    }
    return result;
  }

  Tensor loss(RankGrid& grid, const std::vector<Parameter>& parameters) const {
    Communicator& expert = *grid.expert;
    const auto size = static_cast<size_t>(expert.size()), own = static_cast<size_t>(expert.rank());
    RowCounts send(size, 0), recv(size, 0);
    send[(own + 1) % size] = recv[(own + size - 1) % size] = 4;
    Tensor rows = at::full({4, 4}, static_cast<double>(grid.world->rank() + 1), at::kDouble);
    for (size_t layer = 0; layer < 2; ++layer) {
      const Tensor& experts = parameters[2 * layer + 1].tensor;
      rows = all_to_all(rows * (parameters[2 * layer].tensor + 1), send, recv, expert);
      if (experts.size(0) > 0) {
        rows = rows * (experts[0] + 1);
      } else if (has_anchors) {
        rows = rows + experts.sum();
      }
      rows = all_to_all(rows, recv, send, expert);
    }
    return (rows * (parameters.back().tensor + 1)).sum();
  }

  static void update(OptimizerShards& optimizer) {
    const torch::NoGradGuard no_grad;
    for (const Parameter& piece : optimizer.pieces()) {
      Tensor weights = piece.tensor;
      weights.sub_(piece.tensor.grad(), 0.125);
    }
    optimizer.gather_weights();
  }
};

constexpr int64_t kRanks = 4;

/// What the first rank ends with over NCCL of a schedule; null: over threads.
Tensors end_of(const ToyTraining& training, const FakeSchedule* schedule) {
  FakeNccl fake(schedule == nullptr ? FakeSchedule{} : *schedule);
  Tensors result;
  run_owning_ranks(kRanks, [&](std::unique_ptr<Communicator> world) {
    const bool is_first = world->rank() == 0;
    if (schedule != nullptr) {
      world = make_nccl_communicator(std::move(world), backend_of(fake.join()));
    }
    Tensors own = training.run(std::move(world));
    if (is_first) result = std::move(own);
  });
  return result;
}

const FakeSchedule kLatest;

bool are_equal(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Tensor& x, const Tensor& y) { return at::equal(x, y); });
}

/// Why a job ended.
std::string error_of(const std::function<void()>& job) {
  try {
    job();
    return "well";
  } catch (const std::exception& error) {
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
  EXPECT_THAT(error_of(job),
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
  EXPECT_THAT(error_of(job), HasSubstr("calls of NCCL's wait for each other"));
}

TEST(NcclOrderRanks, ARankWithoutUnitsThatLeavesTheirParametersOutOfTheGraphIsFound) {
  const ToyTraining with_anchors{.has_experts = false};
  EXPECT_EQ(error_of([&] { end_of(with_anchors, &kLatest); }), "well");
  const ToyTraining without{.has_experts = false, .has_anchors = false};
  EXPECT_THAT(error_of([&] { end_of(without, &kLatest); }),
              AllOf(HasSubstr("calls of NCCL's wait for each other"), HasSubstr("gradients"),
                    HasSubstr("exchange")));
}

TEST(NcclOrderRanks, AForgottenWaitForASumOfGradientsIsFound) {
  const Tensors expected = end_of(ToyTraining{}, nullptr);
  EXPECT_TRUE(are_equal(end_of(ToyTraining{}, &kLatest), expected));
  // A rank's host that is slow may still read after the sum.
  bool is_found = false;
  for (int run = 0; run < 30 && !is_found; ++run) {
    is_found = !are_equal(end_of({.forgets_waits = true}, &kLatest), expected);
  }
  EXPECT_TRUE(is_found);
}

TEST(NcclOrderRanks, AnyScheduleOfTheStreamsGivesTheSameBits) {
  for (const bool shards : {false, true}) {
    const ToyTraining training{.shards = shards};
    const Tensors expected = end_of(training, nullptr);
    testing::for_schedules([&](const FakeSchedule& schedule) {
      EXPECT_TRUE(are_equal(end_of(training, &schedule), expected)) << (shards ? "sharded" : "");
    });
  }
}

}  // namespace
}  // namespace shoal
