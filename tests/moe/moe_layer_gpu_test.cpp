#include "moe/moe_layer.h"

#include <array>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "moe/experts/expert_bank.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/moe/small_layer.h"
#include "tests/support/gpu_probe.h"
#include "tests/support/gradient_check.h"
#include "tests/support/moe_layer_fixture.h"
#include "tests/support/on_gpu.h"

// B samples  R rows per sample  D width
namespace shoal {
namespace {

using testing::kPath;
using testing::layer_cases;
using testing::layer_options;
using testing::LayerCase;
using testing::router_choice;
using testing::some_numbers;
using testing::step_of;

class MoeLayerGpu : public testing::OnGpu {
 protected:
  using Results = std::map<std::string, torch::Tensor>;

  /// Outputs, statistics and gradients of a case on one rank, everything float64.
  static Results run(const LayerCase& test, const at::Device& device) {
    RankGrid grid = make_rank_grid(make_self_communicator(), 1);
    BuildContext context;
    context.grid = &grid;
    context.tensor_options = torch::TensorOptions(torch::kFloat64).device(device);
    MoeLayer layer(test.options, test.width, kPath, context);
    initialise(parameters_of(layer, kPath), 1);
    initialise(buffers_of(layer, kPath), 1);
    const torch::Tensor x = some_numbers({test.num_samples, test.rows_per_sample, test.width}, 1)
                                .to(device)
                                .set_requires_grad(true);
    StepContext step = step_of(test.num_samples, test.samples_per_group, test.training);
    step.sample_b = step.sample_b.to(device);
    if (!test.lengths.empty()) step.length_b = torch::tensor(test.lengths, torch::kInt64);
    const MoeOutput output = layer.forward(x, step);
    torch::Tensor loss = (output.y_BRD * some_numbers(x.sizes(), 2).to(device)).sum();
    if (output.auxiliary_loss.defined()) loss = loss + output.auxiliary_loss;
    loss.backward();
    Results results{{"y", output.y_BRD.detach()},
                    {"loss", loss.detach()},
                    {"stats", output.stats.sums},
                    {"x.grad", x.grad()}};
    for (const Parameter& parameter : parameters_of(layer, kPath)) {
      if (parameter.tensor.grad().defined()) results[parameter.name] = parameter.tensor.grad();
    }
    return results;
  }

  void expect_cpu(const LayerCase& test) const {
    SCOPED_TRACE(test.name);
    const Results expected = run(test, torch::kCPU), found = run(test, gpu_);
    ASSERT_EQ(expected.size(), found.size());
    for (const auto& [name, tensor] : expected) {
      SCOPED_TRACE(name);
      expect_close(tensor, found.at(name), 1e5);
    }
  }
};

TEST_F(MoeLayerGpu, EqualsTheCpuInEveryCase) {
  for (LayerCase test : layer_cases()) {
    expect_cpu(test);
    test.name += ", padded";
    test.lengths = {2, 5, 4, 3, 5, 1, 3, 4, 5, 2, 1, 5};
    expect_cpu(test);
  }
}

TEST_F(MoeLayerGpu, EqualsTheCpuWithEveryRouter) {
  for (const char* router :
       {"{name: top_k, k: 2, noise: none}", "{name: top_k, k: 3}", "{name: noisy_top_k, k: 2}",
        "{name: sigmoid, k: 2}", "{name: sigmoid, k: 1, weights: {normalise: none}}",
        "{name: sigmoid, k: 2, groups: {count: 2, keep: 1, score: max}, bias: {rate: 0.1}}",
        "{name: sqrt_softplus, k: 2}", "{name: sinkhorn, k: 2}", "{name: expert_choice, k: 2}",
        "{name: importance_score, k: 2, drop: 0.3}", "{name: hash, k: 2}",
        "{name: forced, k: 2, load: zipf}"}) {
    LayerCase test;
    test.name = router;
    test.options = layer_options(router_choice(router), {}, {});
    expect_cpu(test);
    test.training = false;
    expect_cpu(test);
  }
}

/// A layer in bfloat16 on one rank, with input and gradients of its own.
class BfloatLayer {
 public:
  BfloatLayer(const std::string& router, const std::string& capacity, const at::Device& device)
      : grid_(make_rank_grid(make_self_communicator(), 1)), step_(step_of(kSamples)) {
    BuildContext context;
    context.grid = &grid_;
    context.tensor_options = torch::TensorOptions(torch::kBFloat16).device(device);
    MoeOptions options = layer_options(router_choice(router), {}, {});
    // Widths as the grouped product wants them.
    options.experts =
        Choice<UnitBank>("plain", ExpertBank::Options{4, 2 * kWidth, Activation::kGelu, true});
    if (capacity == "capped") options.capacity = {CapacityMode::kCapped, 0.8, 1, 1, {}};
    layer_ = std::make_unique<MoeLayer>(options, kWidth, kPath, context);
    initialise(parameters_of(*layer_, kPath), 1);
    initialise(buffers_of(*layer_, kPath), 1);
    step_.sample_b = step_.sample_b.to(device);
    x = torch::zeros({kSamples, kRows, kWidth}, context.tensor_options).set_requires_grad(true);
  }

  /// Leaves the output in `y`, and adds to the gradients.
  void run() {
    y = layer_->forward(x, step_).y_BRD;
    y.sum().backward();
  }
  void set_input(int64_t seed) {
    const torch::NoGradGuard no_grad;
    x.copy_(some_numbers(x.sizes(), seed));
    if (x.grad().defined()) x.mutable_grad().zero_();
  }

  torch::Tensor x, y;

 private:
  static constexpr int64_t kSamples = 8, kRows = 16, kWidth = 64;
  RankGrid grid_;
  StepContext step_;
  std::unique_ptr<MoeLayer> layer_;
};

constexpr std::array kRouters{"{name: top_k, k: 2}", "{name: sigmoid, k: 2, bias: {rate: 0.1}}",
                              "{name: importance_score, k: 2, drop: 0.3}"};
constexpr std::array<int64_t, 3> kEmulatedLaunches{88, 84, 98};

TEST_F(MoeLayerGpu, OnOneRankTheHostWaitsForNothing) {
  const testing::GpuProbe probe;
  for (const char* router : kRouters) {
    for (const char* capacity : {"dropless", "capped"}) {
      SCOPED_TRACE(std::string(router) + " " + capacity);
      BfloatLayer layer(router, capacity, gpu_);
      layer.set_input(1);
      layer.run();
      probe.refuse_waits([&] { layer.run(); });
    }
  }
}

// An operator of LibTorch is one kernel on the emulated GPU, on a real one sometimes two or three.
TEST_F(MoeLayerGpu, OnOneRankLaunchesAreThoseOfTheEmulatedGpu) {
  const testing::GpuProbe probe;
  for (size_t i = 0; i < kRouters.size(); ++i) {
    BfloatLayer layer(kRouters[i], "dropless", gpu_);
    layer.set_input(1);
    layer.run();  // what is made at first use
    const int64_t launches = probe.count_launches([&] { layer.run(); });
    std::cout << kRouters[i] << ": " << launches
              << " kernels and copies a layer, forward and backward; on the emulated GPU "
              << kEmulatedLaunches[i] << "\n";
    if (probe.is_emulated()) {
      EXPECT_EQ(launches, kEmulatedLaunches[i]) << kRouters[i];
    } else {
      EXPECT_LE(launches, 3 * kEmulatedLaunches[i] / 2) << kRouters[i];
    }
  }
}

TEST_F(MoeLayerGpu, OnOneRankIsACudaGraph) {
  const testing::GpuProbe probe;
  for (const char* router : kRouters) {
    for (const char* capacity : {"dropless", "capped"}) {
      SCOPED_TRACE(std::string(router) + " " + capacity);
      BfloatLayer layer(router, capacity, gpu_);
      layer.set_input(1);
      layer.run();  // what is made at first use
      const testing::GpuProbe::Captured graph = probe.capture([&] { layer.run(); });
      std::cout << router << " " << capacity << ": " << graph.num_kernels << " kernels and "
                << graph.num_copies << " copies a layer, forward and backward\n";
      const torch::Tensor captured = layer.y;
      layer.set_input(2);
      graph.replay();
      const torch::Tensor y = captured.clone(), grad = layer.x.grad().clone();
      layer.set_input(2);
      layer.run();
      EXPECT_TRUE(torch::equal(layer.y, y));
      EXPECT_TRUE(torch::equal(layer.x.grad(), grad));
    }
  }
}

}  // namespace
}  // namespace shoal
