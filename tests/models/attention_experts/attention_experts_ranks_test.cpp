#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/gradients/gradient_sync.h"
#include "runtime/data/loader/data_order.h"
#include "runtime/options/config_reader.h"
#include "tests/models/attention_experts/attention_case.h"
#include "tests/support/gradient_check.h"
#include "tests/support/moe_layer_fixture.h"
#include "tests/support/ranks.h"

// D width
namespace shoal {
namespace {

using testing::attention_options;
using testing::attention_step;
using testing::difference;
using testing::kAttentionPath;
using testing::kAttentionSizes;
using testing::LayerResult;
using testing::run_grid;
using testing::some_numbers;

/// A layer with a loss around it, to be run in many layouts.
struct AttentionCase {
  AttentionExpertsOptions options;
  int64_t num_images = 7, samples_per_group = 2;
  PlacementRule placement = PlacementRule::kContiguous;
  double bias = 0.0;  ///< of the second expert's logits
};

void add(LayerResult& result, const std::string& name, const torch::Tensor& tensor) {
  const auto [place, is_new] = result.tensors.try_emplace(name, tensor.clone());
  if (!is_new) place->second += tensor;
}

void collect_grads(const std::vector<Parameter>& parameters, LayerResult& result) {
  for (const Parameter& parameter : parameters) {
    const torch::Tensor grad = parameter.tensor.grad();
    if (!parameter.is_stacked()) result.tensors[parameter.name] = grad;
    for (size_t row = 0; row < parameter.unit_ids.size(); ++row) {
      result.tensors[name_of_unit(parameter.name, parameter.unit_ids[row])] =
          grad[static_cast<int64_t>(row)];
    }
  }
}

/// float64 [B, U]: how many tokens of each image the router sends to each expert first, of the
/// images of this rank, without noise.
torch::Tensor routed_of(AttentionExperts& layer, const torch::Tensor& x_bND,
                        const SampleRange& mine, const AttentionCase& test) {
  const torch::NoGradGuard no_grad;
  StepContext step =
      attention_step(mine.first, mine.count, test.num_images, test.samples_per_group);
  step.training = false;
  const torch::Tensor unit_T = layer.forward(x_bND, step).stats.first_unit_T;
  const torch::Tensor routed_BU = torch::zeros({test.num_images, 3}, torch::kFloat64);
  const torch::Tensor is_chosen_TU = unit_T.unsqueeze(1) == torch::arange(3);
  routed_BU.narrow(0, mine.first, mine.count)
      .copy_(is_chosen_TU.view({mine.count, x_bND.size(1), 3}).sum(1));
  return routed_BU;
}

/// What this rank adds to the result of all.
LayerResult run_attention(const AttentionCase& test, RankGrid& grid) {
  AttentionExperts layer(
      test.options, kAttentionSizes, kAttentionPath,
      {.grid = &grid, .tensor_options = torch::kFloat64, .placement = test.placement});
  const std::vector<Parameter> parameters = parameters_of(layer, kAttentionPath);
  initialise(parameters, 9);
  for (const Parameter& parameter : parameters) {
    const torch::NoGradGuard no_grad;
    if (parameter.name.ends_with("router.fc1.weight")) parameter.tensor.mul_(4);
    if (parameter.name.ends_with("router.fc2.weight")) parameter.tensor.mul_(8);
    if (parameter.name.ends_with("router.fc2.bias")) parameter.tensor[1] += test.bias;
  }
  const SampleRange mine = samples_of_rank({0, test.num_images}, test.samples_per_group,
                                           grid.world->rank(), grid.world->size());
  const std::vector<int64_t> all_sizes{test.num_images, 6, 4};
  const auto own = [&](const torch::Tensor& all) {
    return all.narrow(0, mine.first, mine.count).clone();
  };
  torch::Tensor x = own(some_numbers(all_sizes, 31)).set_requires_grad(true);
  const MoeOutput output = layer.forward(
      x, attention_step(mine.first, mine.count, test.num_images, test.samples_per_group));
  torch::Tensor loss = (output.y_BRD * own(some_numbers(all_sizes, 32))).sum();
  if (output.auxiliary_loss.defined()) loss = loss + output.auxiliary_loss;
  loss.backward();
  LayerResult result;
  result.tensors["routed"] = routed_of(layer, x.detach(), mine, test);
  result.loss = loss.item<double>();
  result.stats = output.stats.sums;
  for (const auto& [name, tensor] : {std::pair{"y", output.y_BRD.detach()}, {"x.grad", x.grad()}}) {
    result.tensors[name] = torch::zeros(all_sizes, torch::kFloat64);
    result.tensors[name].narrow(0, mine.first, mine.count).copy_(tensor);
  }
  collect_grads(parameters, result);
  return result;
}

LayerResult run_attention_on(const AttentionCase& test, int64_t expert_ranks, int64_t replicas) {
  std::vector<LayerResult> parts(static_cast<size_t>(expert_ranks * replicas));
  run_grid(expert_ranks, replicas, [&](RankGrid& grid) {
    parts[static_cast<size_t>(grid.world->rank())] = run_attention(test, grid);
  });
  LayerResult all = parts[0];
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    for (const auto& [name, tensor] : parts[rank].tensors) add(all, name, tensor);
    all.stats = all.stats + parts[rank].stats;
    all.loss += parts[rank].loss;
  }
  return all;
}

/// The result of one rank.
LayerResult expect_equal_on_all_layouts(const AttentionCase& test) {
  const LayerResult serial = run_attention_on(test, 1, 1);
  for (const auto& [ranks, replicas] :
       {std::pair{2, 1}, std::pair{3, 1}, std::pair{1, 2}, std::pair{2, 2}, std::pair{4, 1}}) {
    const LayerResult parallel = run_attention_on(test, ranks, replicas);
    const testing::Difference worst = difference(parallel, serial);
    EXPECT_LT(worst.value, 1e-12) << ranks << " x " << replicas << ": " << worst.where;
    EXPECT_TRUE(torch::allclose(parallel.stats, serial.stats, 1e-12, 1e-12));
  }
  return serial;
}

AttentionExpertsOptions with_losses(Mixing mixing) {
  AttentionExpertsOptions options = attention_options(mixing);
  for (const char* name : {"kl_uniform", "switch", "z", "entropy"}) {
    for (const char* scope : {"global", "sequence"}) {
      options.losses->push_back(
          config::load_options_text<AttentionExpertsOptions>(
              std::string("{losses: [{name: ") + name + ", weight: 0.1, scope: " + scope + "}]}",
              "test", {"", {}, nullptr})
              .options.losses->at(0));
    }
  }
  return options;
}

TEST(AttentionExpertsRanks, ParallelEqualsSerial) {
  for (const Mixing mixing : {Mixing::kSoft, Mixing::kHard, Mixing::kHardSharedKv}) {
    for (const PlacementRule rule : {PlacementRule::kContiguous, PlacementRule::kByCost}) {
      expect_equal_on_all_layouts({with_losses(mixing), 7, 2, rule});
    }
  }
}

TEST(AttentionExpertsRanks, AnImageWithoutTokensForAnExpertTakesPart) {
  for (const Mixing mixing : {Mixing::kHard, Mixing::kHardSharedKv}) {
    const LayerResult serial = expect_equal_on_all_layouts({attention_options(mixing)});
    const torch::Tensor routed_BU = serial.tensors.at("routed");
    EXPECT_GT(routed_BU.sum(0).min().item<double>(), 0);
    // One is on the rank of its expert where there are three, the other on another rank.
    for (const auto& [image, expert] : {std::pair{0, 0}, std::pair{2, 1}}) {
      EXPECT_EQ(routed_BU[image][expert].item<double>(), 0) << routed_BU;
    }
  }
}

TEST(AttentionExpertsRanks, AnExpertWithoutTokensAndRanksWithoutImagesTakePart) {
  for (const Mixing mixing : {Mixing::kHard, Mixing::kHardSharedKv}) {
    const LayerResult serial =
        expect_equal_on_all_layouts({attention_options(mixing), 7, 2, {}, -1e3});
    EXPECT_EQ(serial.tensors.at("routed").select(1, 1).sum().item<double>(), 0);
    for (const char* weight : {"query.weight", "out.bias"}) {
      const std::string name = std::string(kAttentionPath) + ".experts.1." + weight;
      EXPECT_EQ(serial.tensors.at(name).abs().max().item<double>(), 0) << name;
    }
    expect_equal_on_all_layouts({attention_options(mixing), 2, 1, {}, 0.0});
  }
}

TEST(AttentionExpertsRanks, RoutersWithTwoExpertsAToken) {
  AttentionExpertsOptions two = attention_options(Mixing::kHard);
  two.router = testing::router_choice("{name: mlp, k: 2, noise: gaussian}");
  expect_equal_on_all_layouts({two});
}

/// Number of tokens whose output is zero with these options on one rank; equal on all layouts.
int64_t tokens_left_out(const AttentionExpertsOptions& options) {
  const LayerResult serial = expect_equal_on_all_layouts({options});
  return (serial.tensors.at("y").abs().amax(2) == 0).sum().item<int64_t>();
}

TEST(AttentionExpertsRanks, TokensMayBeLeftOut) {
  for (const Mixing mixing : {Mixing::kHard, Mixing::kHardSharedKv}) {
    AttentionExpertsOptions options = attention_options(mixing);
    options.router = testing::router_choice("{name: importance_score, k: 1, drop: 0.3}");
    // Three of the twelve tokens of each of three groups, one of the six of the last.
    EXPECT_EQ(tokens_left_out(options), 10);
    // Each expert takes four of twelve tokens: some have two experts, others none.
    options.router = testing::router_choice("{name: expert_choice, k: 1}");
    EXPECT_GT(tokens_left_out(options), 0);
  }
}

/// The list of calls of a pass that sums gradients while it runs, a bucket a parameter.
uint64_t calls_of_pass(const AttentionCase& test, RankGrid& grid) {
  AttentionExperts layer(test.options, kAttentionSizes, kAttentionPath,
                         {.grid = &grid, .tensor_options = torch::kFloat64});
  const std::vector<Parameter> parameters = parameters_of(layer, kAttentionPath);
  initialise(parameters, 9);
  GradientSync sync(group_parameters(parameters, grid), *grid.world, /*bucket_bytes=*/8);
  const SampleRange mine = samples_of_rank({0, test.num_images}, test.samples_per_group,
                                           grid.world->rank(), grid.world->size());
  const torch::Tensor x = some_numbers({mine.count, 6, 4}, 31).set_requires_grad(true);
  sync.zero_grad();
  sync.start_with_backward();
  layer.forward(x, attention_step(mine.first, mine.count, test.num_images, test.samples_per_group))
      .y_BRD.sum()
      .backward();
  sync.reduce();
  return grid.world->counters().order->hash;
}

TEST(AttentionExpertsRanks, SumGradientsAtThePlaceOfRanksWithExpertsWhereThereAreNone) {
  for (const Mixing mixing : {Mixing::kSoft, Mixing::kHard, Mixing::kHardSharedKv}) {
    for (const int64_t num_images : {7, 2}) {
      std::vector<uint64_t> calls(4);
      run_grid(4, 1, [&](RankGrid& grid) {  // of three experts
        calls[static_cast<size_t>(grid.world->rank())] =
            calls_of_pass({attention_options(mixing), num_images}, grid);
      });
      EXPECT_THAT(calls, ::testing::Each(calls[0])) << num_images << " images";
    }
  }
}

}  // namespace
}  // namespace shoal
