#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include "models/decoder/causal_attention.h"
#include "models/decoder/rotary.h"
#include "models/kernels/layer_norm.h"
#include "moe/exchange/dispatch.h"
#include "moe/experts/expert_mlp.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/support/emulated_gpu/counts.h"
#include "tests/support/emulated_gpu/device.h"
#include "tests/support/emulated_gpu/streamed_rows.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

// Numbers of launches of parts of a model: the exchange of a MoE layer without products, losses and
// transfers, products of experts, norms, rotary positions.
namespace shoal::testing {
namespace {

using emulated_gpu::Counts;
using emulated_gpu::counts_of;

constexpr int64_t kExpertRanks = 2, kRoutedTokens = 32, kTokenWidth = 16, kRoutedUnits = 8;

struct ExchangeCase {
  CapacityMode mode = CapacityMode::kDropless;
  UnitPlacement placement = UnitPlacement::contiguous(kRoutedUnits, kExpertRanks);
};

/// Work of rank 0 for the rows of one layer, there and back.
struct ExchangeCounts {
  Counts planning, forward, backward;
};

void exchange_rows(const ExchangeCase& test, RankGrid& grid, ExchangeCounts& made) {
  const auto rank = static_cast<c10::DeviceIndex>(grid.world->rank());
  const c10::Device device(c10::kCUDA, rank);
  const emulated_gpu::OnDevice on_device(device);
  grid.device = device;
  grid.expert = std::make_unique<StreamedRows>(std::move(grid.expert));
  const auto some = [&](at::IntArrayRef sizes, int64_t seed) {
    return some_numbers(sizes, seed).to(torch::kBFloat16).to(device).set_requires_grad(true);
  };
  const Routing routing =
      make_routing(some_numbers({kRoutedTokens, kRoutedUnits}, 20 + rank).to(device), /*k=*/2);
  const torch::Tensor x = some({kRoutedTokens, kTokenWidth}, rank);
  TokenAssignments chunk = apply_capacity(routing, {test.mode, 1.0, 1, 1, {}});
  if (test.mode == CapacityMode::kPadded) {
    chunk.rows_per_unit_E.assign(kExpertRanks, chunk.token_A.size(0) / kRoutedUnits);
  }
  chunk.weight_A = chunk.weight_A.detach().to(torch::kFloat32).set_requires_grad(true);
  const PackedType type{torch::kBFloat16, torch::kFloat32, kTokenWidth};
  std::vector<RowRoute> routes;
  made.planning =
      counts_of([&] { routes = start_routes({chunk}, test.placement, grid, {}, {type}).wait(); });
  std::vector<torch::Tensor> outputs, gradients;
  made.forward = counts_of([&] {
    for (const RowRoute& route : routes) {
      const Dispatched arrived = dispatch(x, chunk.weight_A, route);
      outputs.insert(outputs.end(), {combine(arrived.rows_RD, route), arrived.weight_R});
    }
  });
  for (const torch::Tensor& output : outputs) {
    gradients.push_back(some_numbers(output.sizes(), 3).to(output.scalar_type()).to(device));
  }
  made.backward = counts_of([&] {
    torch::autograd::grad(outputs, {x, chunk.weight_A}, gradients);
  });
}

ExchangeCounts count_exchange(const ExchangeCase& test) {
  ExchangeCounts made;
  run_grid(kExpertRanks, 1, [&](RankGrid& grid) {
    ExchangeCounts others;
    exchange_rows(test, grid, grid.world->rank() == 0 ? made : others);
  });
  std::cout << emulated_gpu::table_of({{"planning", made.planning},
                                       {"moving rows, forward", made.forward},
                                       {"moving rows, backward", made.backward}});
  return made;
}

TEST(EmulatedGpuLaunches, AnExchangeTakesFewLaunchesAndOneCopy) {
  const ExchangeCounts made = count_exchange({});
  const Counts forward = made.planning + made.forward;
  EXPECT_LE(forward.num_launches(), 14);
  EXPECT_LE(made.backward.num_launches(), 14);
  EXPECT_LE(forward.num_pinned_copies(), 1);
  EXPECT_EQ(forward.waits, 1);
  for (const Counts& pass : {forward, made.backward}) {
    EXPECT_EQ(pass.to_gpu.number + pass.to_host.number, 0);
  }
  EXPECT_EQ(made.backward.num_pinned_copies() + made.backward.waits, 0);
}

TEST(EmulatedGpuLaunches, AnExchangeWithPaddingNeverWaits) {
  ExchangeCase test;
  test.mode = CapacityMode::kPadded;
  const ExchangeCounts made = count_exchange(test);
  const Counts forward = made.planning + made.forward;
  EXPECT_LE(forward.num_launches(), 14);
  EXPECT_LE(made.backward.num_launches(), 14);
  EXPECT_LE(forward.num_pinned_copies(), 1);
  EXPECT_EQ(forward.waits + made.backward.waits, 0);
}

/// Work of the products of 256 experts with some rows each, forward and backward. `skew`: further
/// rows of every 16th expert.
Counts count_experts(torch::Dtype dtype, int64_t width, int64_t skew = 0) {
  constexpr int64_t kExperts = 256;
  const auto some = [&](at::IntArrayRef sizes) {
    return torch::ones(sizes, torch::TensorOptions(dtype).device(emulated_gpu::kDevice))
        .set_requires_grad(true);
  };
  std::vector<int64_t> rows_u;
  int64_t num_rows = 0;
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    rows_u.push_back(3 + expert * 7 % 5 + (expert % 16 == 0 ? skew : 0));
    num_rows += rows_u.back();
  }
  ExpertWeights weights;
  weights.fc1_weight = some({kExperts, width, 2 * width});
  weights.fc2_weight = some({kExperts, 2 * width, width});
  const torch::Tensor rows = some({num_rows, width}), upstream = some({num_rows, width}).detach();
  return counts_of(
      [&] { expert_mlp(rows, rows_u, weights, Activation::kGelu).backward(upstream); });
}

TEST(EmulatedGpuLaunches, ManyExpertsShareProducts) {
  const Counts made = count_experts(torch::kFloat32, 8),
               filled = count_experts(torch::kBFloat16, 12);
  std::cout << emulated_gpu::table_of(
      {{"256 experts, float32", made}, {"256 experts, bfloat16, 12", filled}});
  for (const Counts& each : {made, filled}) EXPECT_LE(each.num_launches(), 40);
}

// Unequal loads take more products, but no more of anything else.
TEST(EmulatedGpuLaunches, UnequalExpertsTakeMoreProductsAlone) {
  const char* kProduct = "aten::bmm";
  const Counts even = count_experts(torch::kFloat32, 8),
               skewed = count_experts(torch::kFloat32, 8, 600);
  std::cout << emulated_gpu::table_of({{"even", even}, {"skewed", skewed}});
  EXPECT_EQ(skewed.without({kProduct}).launches, even.without({kProduct}).launches);
  EXPECT_EQ(skewed.to_gpu_pinned.number, even.to_gpu_pinned.number);
  // Into places: rows and hidden values in each pass, two gradients. Back: two results of each
  // pass.
  EXPECT_EQ(skewed.launches.at("gather_kernel"), 10);
}

TEST(EmulatedGpuLaunches, NormsArePassesOfOneKernelAndSumsOfParameters) {
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
      const torch::TensorOptions options(emulated_gpu::kDevice);
      const LayerNorm norm(20, options.dtype(torch::kFloat32), NormOptions{kind, 1e-5});
      const torch::Tensor x = torch::ones({50, 20}, options.dtype(dtype)).set_requires_grad(true);
      NormedBranch y;
      const Counts forward = counts_of([&] { y = norm->branch(x); });
      const std::vector<torch::Tensor> upstream{torch::ones_like(x), torch::ones_like(x)};
      std::vector<torch::Tensor> leaves = norm->parameters();
      leaves.push_back(x);
      const Counts backward = counts_of([&] {
        torch::autograd::grad({y.normed, y.residual}, leaves, upstream);
      });
      EXPECT_EQ(forward.num_launches(), 1) << emulated_gpu::table_of({{"forward", forward}});
      EXPECT_EQ(backward.num_launches(), kind == NormKind::kLayer ? 3 : 2)
          << emulated_gpu::table_of({{"backward", backward}});
    }
  }
}

TEST(EmulatedGpuLaunches, HeadsAreRotatedWhereTheyAreByOneKernel) {
  constexpr int64_t kTokens = 5, kHeadWidth = 8;
  const torch::TensorOptions options(emulated_gpu::kDevice);
  const torch::Tensor qkv = torch::ones({2, kTokens, 48}, options.dtype(torch::kBFloat16));
  const torch::Tensor key = split_heads(qkv.chunk(3, 2)[1], kHeadWidth).set_requires_grad(true);
  const Rotation rotation =
      rotation_at(torch::arange(kTokens, options), kHeadWidth, 100.0, torch::kBFloat16);
  torch::Tensor y;
  const Counts forward = counts_of([&] { y = rotate(key, rotation); });
  const torch::Tensor upstream = torch::ones_like(y);
  const Counts backward = counts_of([&] { torch::autograd::grad({y}, {key}, {upstream}); });
  EXPECT_EQ(forward.num_launches(), 1) << emulated_gpu::table_of({{"forward", forward}});
  EXPECT_EQ(backward.num_launches(), 1) << emulated_gpu::table_of({{"backward", backward}});
}

}  // namespace
}  // namespace shoal::testing
