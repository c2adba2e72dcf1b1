#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "moe/experts/expert_bank.h"
#include "moe/moe_layer.h"
#include "runtime/device/device_copy.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/moe/routing/make_step.h"
#include "tests/moe/small_layer.h"
#include "tests/support/emulated_gpu/device.h"
#include "tests/support/emulated_gpu/emulated_gpu.h"
#include "tests/support/emulated_gpu/streamed_rows.h"
#include "tests/support/gradient_check.h"
#include "tests/support/moe_layer_fixture.h"

// Layers of several ranks, each with an emulated GPU of its own.
namespace shoal::testing {
namespace {

using Omission = StreamedRows::Omission;

/// A layer of two expert ranks, forward and backward.
struct RanksCase {
  c10::DeviceType device = c10::kCUDA;
  torch::Dtype dtype = torch::kBFloat16;
  CapacityMode mode = CapacityMode::kDropless;
  int64_t num_chunks = 1;
  bool has_backward = true;
  StreamedRows::Fault fault = {};  ///< of rank 0
};

constexpr int64_t kRanks = 2, kSamples = 4, kRows = 8, kWidth = 16;

MoeOptions options_of(const RanksCase& test) {
  MoeOptions options = layer_options(router_choice("{name: top_k, k: 2}"), {}, {});
  options.experts = Choice<UnitBank>("plain", ExpertBank::Options{4, 32, Activation::kGelu, true});
  options.exchange.chunks = test.num_chunks;
  options.capacity = {test.mode, 1.0, 1, 1, {}};
  return options;
}

/// Outputs and gradients of one rank, on the CPU.
std::vector<torch::Tensor> run_rank(const RanksCase& test, RankGrid& grid) {
  const auto rank = static_cast<c10::DeviceIndex>(grid.world->rank());
  const bool is_gpu = test.device == c10::kCUDA;
  const emulated_gpu::OnDevice on_device({c10::kCUDA, rank});
  grid.device = is_gpu ? c10::Device(c10::kCUDA, rank) : c10::Device(c10::kCPU);
  if (is_gpu) {
    grid.expert = std::make_unique<StreamedRows>(std::move(grid.expert),
                                                 rank == 0 ? test.fault : StreamedRows::Fault{});
  }
  BuildContext context;
  context.grid = &grid;
  context.tensor_options = torch::TensorOptions(test.dtype).device(grid.device);
  MoeLayer layer(options_of(test), kWidth, kPath, context);
  initialise(parameters_of(layer, kPath), 1);
  StepContext step = step_of(kRanks * kSamples);
  step.sample_b =
      (torch::arange(kSamples) + rank * kSamples).to(grid.device, /*non_blocking=*/true);
  const torch::Tensor x = some_numbers({kSamples, kRows, kWidth}, rank)
                              .to(context.tensor_options, /*non_blocking=*/true)
                              .set_requires_grad(true);
  const torch::Tensor y = layer.forward(x, step).y_BRD;
  if (!test.has_backward) return {};
  y.backward(some_numbers(y.sizes(), 7).to(context.tensor_options, /*non_blocking=*/true));
  std::vector<torch::Tensor> results{y.detach().cpu(), x.grad().cpu()};
  for (const Parameter& parameter : parameters_of(layer, kPath)) {
    if (parameter.tensor.grad().defined()) results.push_back(parameter.tensor.grad().cpu());
  }
  return results;
}

/// run_rank's of all ranks, one after the other.
std::vector<torch::Tensor> run_ranks_of(const RanksCase& test) {
  std::vector<std::vector<torch::Tensor>> by_rank(kRanks);
  run_grid(kRanks, 1, [&](RankGrid& grid) {
    by_rank[static_cast<size_t>(grid.world->rank())] = run_rank(test, grid);
  });
  std::vector<torch::Tensor> all;
  for (const auto& results : by_rank) all.insert(all.end(), results.begin(), results.end());
  return all;
}

/// How often the forward pass makes the hosts of two ranks wait, together.
int64_t waits_of(CapacityMode mode, int64_t num_chunks) {
  const int64_t before = emulated_gpu::num_waits() + HostCopy::num_waits();
  RanksCase test;
  test.mode = mode;
  test.num_chunks = num_chunks;
  test.has_backward = false;
  run_ranks_of(test);
  return emulated_gpu::num_waits() + HostCopy::num_waits() - before;
}

// One count exchange serves all chunks.
TEST(EmulatedGpuRanks, WaitOnceALayer) {
  for (const int64_t num_chunks : {1, 2, 3}) {
    SCOPED_TRACE(num_chunks);
    EXPECT_EQ(waits_of(CapacityMode::kDropless, num_chunks), 2);
  }
}

TEST(EmulatedGpuRanks, WaitForNothingWherePaddingTellsTheCounts) {
  for (const int64_t num_chunks : {1, 2, 3}) {
    SCOPED_TRACE(num_chunks);
    EXPECT_EQ(waits_of(CapacityMode::kPadded, num_chunks), 0);
  }
}

TEST(EmulatedGpuRanks, ComputeWhatTheCpuDoesUnderEachSchedule) {
  for (const CapacityMode mode : {CapacityMode::kDropless, CapacityMode::kPadded}) {
    for (const int64_t num_chunks : {1, 2}) {
      RanksCase test;
      test.mode = mode;
      test.num_chunks = num_chunks;
      test.dtype = torch::kFloat64;
      test.device = c10::kCPU;
      const std::vector<torch::Tensor> expected = run_ranks_of(test);
      test.device = c10::kCUDA;
      emulated_gpu::for_schedules([&] {
        const std::vector<torch::Tensor> found = run_ranks_of(test);
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_TRUE(torch::allclose(found[i], expected[i], 1e-9, 1e-12)) << i;
        }
      });
    }
  }
}

/// The faults of a layer with one that is planted.
std::string faults_of(Omission omission, int64_t call) {
  RanksCase test;
  test.dtype = torch::kFloat64;
  test.fault = {omission, call};
  const emulated_gpu::Faults faults;
  try {
    run_ranks_of(test);
  } catch (const c10::Error&) {
    // Counts that have not arrived may be refused.
  }
  const std::string text = faults.text();
  emulated_gpu::finish_all_work();
  return text;
}

/// The calls of start_all_to_all, in their order: those of the forward pass and of the backward
/// pass, which begins with the combine.
enum Exchange : int64_t { kCounts, kDispatch, kCombine, kCombineBackward, kDispatchBackward };
constexpr Exchange kExchanges[] = {kCounts, kDispatch, kCombine, kCombineBackward,
                                   kDispatchBackward};

void expect_text(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
}

TEST(EmulatedGpuRanks, ALayerHasNoFaults) { EXPECT_EQ(faults_of(Omission::kNone, 0), ""); }

TEST(EmulatedGpuRanks, ALostWaitBeforeAnExchangeIsFound) {
  for (const Exchange exchange : kExchanges) {
    SCOPED_TRACE(exchange);
    expect_text(faults_of(Omission::kWaitBefore, exchange), "all_to_all on stream");
  }
}

// Of counts, exchange -> experts, experts -> combine and their gradients.
TEST(EmulatedGpuRanks, ALostWaitAfterAnExchangeIsFound) {
  for (const Exchange exchange : kExchanges) {
    SCOPED_TRACE(exchange);
    expect_text(faults_of(Omission::kWaitAfter, exchange), "that all_to_all on stream");
  }
}

TEST(EmulatedGpuRanks, ABufferThatIsFreedEarlyIsFound) {
  for (const Exchange exchange : kExchanges) {
    if (exchange == kCounts) continue;  // these are the layer's own
    SCOPED_TRACE(exchange);
    expect_text(faults_of(Omission::kBuffers, exchange), "is freed before all_to_all on stream");
  }
}

/// A parameter after a step with the sum of two ranks' gradients.
torch::Tensor updated_by_sum(const StreamedRows::Fault& fault) {
  torch::Tensor result;
  run_grid(kRanks, 1, [&](RankGrid& grid) {
    const auto rank = static_cast<c10::DeviceIndex>(grid.world->rank());
    const c10::Device device(c10::kCUDA, rank);
    const emulated_gpu::OnDevice on_device(device);
    StreamedRows comm(std::move(grid.world), rank == 0 ? fault : StreamedRows::Fault{});
    const torch::Tensor weight = torch::zeros({100}, device).set_requires_grad(true);
    (weight * (rank + 1)).sum().backward();
    Pending sum = comm.start_all_reduce(weight.grad(), ReduceOp::kSum);
    sum.wait();
    const torch::NoGradGuard no_grad;
    weight.sub_(weight.grad());
    const torch::Tensor host = weight.detach().cpu();
    if (rank == 0) result = host;
  });
  return result;
}

TEST(EmulatedGpuRanks, ALostWaitBetweenABucketAndTheOptimizerIsFound) {
  emulated_gpu::for_schedules(
      [] { EXPECT_TRUE(torch::equal(updated_by_sum({}), torch::full({100}, -3.0))); });
  for (const Omission omission : {Omission::kWaitBefore, Omission::kWaitAfter}) {
    const emulated_gpu::Faults faults;
    updated_by_sum({omission, 0});
    expect_text(faults.text(), "all_reduce on stream");
    emulated_gpu::finish_all_work();
  }
}

}  // namespace
}  // namespace shoal::testing
