#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "moe/experts/expert_bank.h"
#include "moe/moe_layer.h"
#include "runtime/device/device_copy.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/moe/routing/make_step.h"
#include "tests/moe/small_layer.h"
#include "tests/support/emulated_gpu/device.h"
#include "tests/support/emulated_gpu/emulated_gpu.h"
#include "tests/support/forwarding_communicator.h"
#include "tests/support/moe_layer_fixture.h"

// Layers of several ranks on the emulated GPU.
namespace shoal::testing {
namespace {

/// Rows of the emulated GPU between thread ranks: its memory is the CPU's.
class EmulatedRows : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  Pending start_all_to_all(torch::Tensor in, const RowCounts& send_rows, torch::Tensor out,
                           const RowCounts& recv_rows) override {
    return inner_.start_all_to_all(lent(in), send_rows, lent(out), recv_rows);
  }

 private:
  static torch::Tensor lent(const torch::Tensor& tensor) {
    return torch::from_blob(
        tensor.data_ptr(), tensor.sizes(), [tensor](void*) {},
        torch::TensorOptions(tensor.scalar_type()));
  }
};

/// How often a layer's forward pass makes the hosts of two expert ranks wait, together. Their
/// backward passes would share LibTorch's one thread for the device, and wait there for each other.
int64_t waits_of(CapacityMode mode, int64_t num_chunks) {
  const int64_t before = emulated_gpu::num_waits() + HostCopy::num_waits();
  run_grid(2, 1, [&](RankGrid& grid) {
    constexpr int64_t kSamples = 4, kRows = 8, kWidth = 16;
    grid.device = emulated_gpu::kDevice;
    grid.expert = std::make_unique<EmulatedRows>(std::move(grid.expert));
    BuildContext context;
    context.grid = &grid;
    context.tensor_options = torch::TensorOptions(torch::kBFloat16).device(emulated_gpu::kDevice);
    MoeOptions options = layer_options(router_choice("{name: top_k, k: 2}"), {}, {});
    options.experts =
        Choice<UnitBank>("plain", ExpertBank::Options{4, 32, Activation::kGelu, true});
    options.exchange.chunks = num_chunks;
    options.capacity = {mode, 1.0, 1, 1, {}};
    MoeLayer layer(options, kWidth, kPath, context);
    initialise(parameters_of(layer, kPath), 1);
    StepContext step = step_of(2 * kSamples);
    step.sample_b = (torch::arange(kSamples) + grid.world->rank() * kSamples)
                        .to(emulated_gpu::kDevice, /*non_blocking=*/true);
    const torch::Tensor x =
        torch::zeros({kSamples, kRows, kWidth}, context.tensor_options).set_requires_grad(true);
    layer.forward(x, step);
  });
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

}  // namespace
}  // namespace shoal::testing
