#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moe/nexus/nexus_layer.h"
#include "runtime/data/loader/data_order.h"
#include "tests/moe/nexus/nexus_case.h"
#include "tests/support/gradient_check.h"
#include "tests/support/moe_layer_fixture.h"
#include "tests/support/ranks.h"

// D width  E experts  M memory units
namespace shoal {
namespace {

using testing::difference;
using ::testing::ElementsAre;
using testing::kNexusPath;
using testing::LayerResult;
using testing::nexus_options;
using testing::nexus_step;
using testing::run_grid;
using testing::some_numbers;

/// A layer with a loss around it, to be run in many layouts.
struct NexusCase {
  NexusOptions options;
  int64_t num_images = 7, samples_per_group = 2;
  PlacementRule placement = PlacementRule::kContiguous;
  std::vector<int64_t> lengths = {};  ///< tokens of each image, at most 5; empty: all have 5
};

void add(LayerResult& result, const std::string& name, const torch::Tensor& tensor) {
  const auto [place, is_new] = result.tensors.try_emplace(name, tensor.clone());
  if (!is_new) place->second += tensor;
}

/// What this rank adds to the result of all.
LayerResult run_nexus(const NexusCase& test, RankGrid& grid) {
  NexusLayer layer(test.options, 6, kNexusPath,
                   {.grid = &grid, .tensor_options = torch::kFloat64, .placement = test.placement});
  const std::vector<Parameter> parameters = parameters_of(layer, kNexusPath);
  initialise(parameters, 9);
  const SampleRange mine = samples_of_rank({0, test.num_images}, test.samples_per_group,
                                           grid.world->rank(), grid.world->size());
  const std::vector<int64_t> all_sizes{test.num_images, 5, 6};
  const auto own = [&](const torch::Tensor& all) {
    return all.narrow(0, mine.first, mine.count).clone();
  };
  StepContext step = nexus_step(mine.first, mine.count, test.num_images, test.samples_per_group);
  int64_t rows = 5;
  if (!test.lengths.empty()) {  // each rank pads to its longest
    step.length_b = own(torch::tensor(test.lengths, torch::kInt64));
    rows = mine.count == 0 ? 1 : step.length_b.max().item<int64_t>();
  }
  const auto trimmed = [&](const torch::Tensor& all) {
    return own(all).narrow(1, 0, rows).contiguous();
  };
  torch::Tensor x = trimmed(some_numbers(all_sizes, 31)).set_requires_grad(true);
  const MoeOutput output = layer.forward(x, step);
  const torch::Tensor loss = (output.y_BRD * trimmed(some_numbers(all_sizes, 32))).sum();
  loss.backward();
  LayerResult result;
  result.loss = loss.item<double>();
  result.stats = output.stats.sums;
  for (const auto& [name, tensor] : {std::pair{"y", output.y_BRD.detach()}, {"x.grad", x.grad()}}) {
    result.tensors[name] = torch::zeros(all_sizes, torch::kFloat64);
    result.tensors[name].narrow(0, mine.first, mine.count).narrow(1, 0, rows).copy_(tensor);
  }
  for (const Parameter& parameter : parameters) {
    const torch::Tensor grad = parameter.tensor.grad();
    if (!parameter.is_stacked()) result.tensors[parameter.name] = grad;
    for (size_t row = 0; row < parameter.unit_ids.size(); ++row) {
      result.tensors[name_of_unit(parameter.name, parameter.unit_ids[row])] =
          grad[static_cast<int64_t>(row)];
    }
  }
  return result;
}

LayerResult run_nexus_on(const NexusCase& test, int64_t expert_ranks, int64_t replicas) {
  std::vector<LayerResult> parts(static_cast<size_t>(expert_ranks * replicas));
  run_grid(expert_ranks, replicas, [&](RankGrid& grid) {
    parts[static_cast<size_t>(grid.world->rank())] = run_nexus(test, grid);
  });
  LayerResult all = parts[0];
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    for (const auto& [name, tensor] : parts[rank].tensors) add(all, name, tensor);
    all.stats = all.stats + parts[rank].stats;
    all.loss += parts[rank].loss;
  }
  return all;
}

TEST(NexusLayerRanks, ParallelEqualsSerial) {
  for (const NexusVariant variant : {NexusVariant::kNormalised, NexusVariant::kPaper}) {
    for (const auto& [experts, memory] : {std::pair{3, 2}, std::pair{2, 0}, std::pair{0, 3}}) {
      for (const PlacementRule rule : {PlacementRule::kContiguous, PlacementRule::kByCost}) {
        NexusCase test{nexus_options(experts, memory, variant), 7, 2, rule};
        if (experts == 3) test.lengths = {3, 2, 1, 1, 5, 2, 4};
        const LayerResult serial = run_nexus_on(test, 1, 1);
        for (const auto& [ranks, replicas] : {std::pair{2, 1}, std::pair{1, 2}, std::pair{3, 1},
                                              std::pair{2, 2}, std::pair{4, 1}}) {
          const LayerResult parallel = run_nexus_on(test, ranks, replicas);
          const testing::Difference worst = difference(parallel, serial);
          EXPECT_LT(worst.value, 1e-12) << experts << " + " << memory << " on " << ranks << " x "
                                        << replicas << ": " << worst.where;
          EXPECT_TRUE(torch::allclose(parallel.stats, serial.stats, 1e-12, 1e-12));
        }
      }
    }
  }
}

TEST(NexusLayerRanks, RanksWithoutImagesAndWithoutUnitsTakePart) {
  // Two images over four ranks, and three units: two ranks have no image, one has no unit.
  const NexusCase test{nexus_options(2, 1), 2, 1, PlacementRule::kContiguous};
  const LayerResult serial = run_nexus_on(test, 1, 1);
  for (const int64_t ranks : {2, 3, 4}) {
    const testing::Difference worst = difference(run_nexus_on(test, ranks, 1), serial);
    EXPECT_LT(worst.value, 1e-12) << ranks << ": " << worst.where;
  }
}

TEST(NexusLayerRanks, SendsTheSlotsAndNothingElse) {
  const NexusCase test{nexus_options(3, 2), 7, 2, PlacementRule::kByCost};
  run_grid(3, 1, [&](RankGrid& grid) {
    run_nexus(test, grid);
    const NexusLayer layer(
        test.options, 6, kNexusPath,
        {.grid = &grid, .tensor_options = torch::kFloat64, .placement = test.placement});
    const int64_t rank = grid.expert->rank();
    const int64_t own = samples_of_rank({0, 7}, 2, rank, 3).count;
    const auto units = static_cast<int64_t>(layer.placement().units_of_rank(rank).size());
    EXPECT_EQ(grid.expert->counters().sent_bytes,
              2 * 8 * 6 * 2 * (own * (5 - units) + units * (7 - own)))
        << rank;
    EXPECT_EQ(grid.expert->counters().all_to_all, 4);
    EXPECT_EQ(grid.world->counters().all_reduce + grid.world->counters().all_to_all, 0);
  });
}

/// The placement of two experts and five memory units on three ranks, an expert as dear as all
/// memory units: 2 * 6 * 30 = 360 a slot, against (9 + 3) * 6 = 72.
void expect_by_cost(PlacementRule rule, const UnitLoads& unit_load) {
  NexusOptions options = nexus_options(2, 5);
  options.experts.hidden = 30;
  run_grid(3, 1, [&](RankGrid& grid) {
    const NexusLayer layer(options, 6, kNexusPath,
                           {.grid = &grid,
                            .tensor_options = torch::kFloat64,
                            .placement = rule,
                            .unit_load = unit_load});
    EXPECT_THAT(layer.placement().units_of_rank(0), ElementsAre(0));
    EXPECT_THAT(layer.placement().units_of_rank(1), ElementsAre(1));
    EXPECT_THAT(layer.placement().units_of_rank(2), ElementsAre(2, 3, 4, 5, 6));
  });
}

TEST(NexusLayerRanks, ByCostEvensOutExpertsAndMemoryUnits) {
  expect_by_cost(PlacementRule::kByCost, {});
}

TEST(NexusLayerRanks, ByLoadIsByCostWhateverWasLogged) {
  expect_by_cost(PlacementRule::kByLoad, {});
  expect_by_cost(PlacementRule::kByLoad, {{kNexusPath, {1, 1, 1, 1, 1, 1, 50}}});
}

}  // namespace
}  // namespace shoal
