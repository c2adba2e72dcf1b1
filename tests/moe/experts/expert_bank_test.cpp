#include "moe/experts/expert_bank.h"

#include <gtest/gtest.h>

#include <cmath>

namespace shoal {
namespace {

std::vector<Parameter> parameters_on(int64_t rank, int64_t num_ranks) {
  UnitBank::Context context;
  context.width = 6;
  context.place = [num_ranks](const std::vector<double>& cost_U) {
    return UnitPlacement::contiguous(static_cast<int64_t>(cost_U.size()), num_ranks);
  };
  context.rank = rank;
  context.tensor_options = torch::kFloat32;
  const ExpertBank bank({4, 10, Activation::kGelu, true}, context);
  std::vector<Parameter> parameters = parameters_of(bank, "blocks.2.moe_s.experts");
  initialise(parameters, 5);
  return parameters;
}

TEST(ExpertBank, NamesItsParametersByUnit) {
  const std::vector<Parameter> parameters = parameters_on(1, 3);
  ASSERT_EQ(parameters.size(), 4u);
  EXPECT_EQ(parameters[0].name, "blocks.2.moe_s.experts.*.fc1.weight");
  EXPECT_EQ(parameters[1].name, "blocks.2.moe_s.experts.*.fc1.bias");
  EXPECT_EQ(name_of_unit(parameters[2].name, 2), "blocks.2.moe_s.experts.2.fc2.weight");
  EXPECT_EQ(parameters[0].unit_ids, (std::vector<int64_t>{2}));
  EXPECT_EQ(parameters[0].tensor.sizes(), (std::vector<int64_t>{1, 6, 10}));
  EXPECT_EQ(parameters[0].stacked_dims, 1);
}

TEST(ExpertBank, FirstWeightsDoNotDependOnWhereAnExpertLives) {
  const std::vector<Parameter> alone = parameters_on(0, 1);
  for (const int64_t rank : {0, 1, 2}) {
    const std::vector<Parameter> shard = parameters_on(rank, 3);
    for (size_t i = 0; i < shard.size(); ++i) {
      for (size_t row = 0; row < shard[i].unit_ids.size(); ++row) {
        EXPECT_TRUE(torch::equal(shard[i].tensor[static_cast<int64_t>(row)],
                                 alone[i].tensor[shard[i].unit_ids[row]]));
      }
    }
  }
  EXPECT_FALSE(torch::equal(alone[0].tensor[0], alone[0].tensor[1]));
}

TEST(ExpertBank, WeightsAreXavierUniformByTheFansOfOneExpert) {
  const std::vector<Parameter> parameters = parameters_on(0, 1);
  const double bound = std::sqrt(6.0 / 16.0);
  for (const size_t i : {0, 2}) {
    EXPECT_LE(parameters[i].tensor.abs().max().item<double>(), bound);
    EXPECT_GT(parameters[i].tensor.abs().max().item<double>(), 0.9 * bound);
  }
  for (const size_t i : {1, 3}) {
    EXPECT_LT(parameters[i].tensor.abs().max().item<double>(), 6e-6);
    EXPECT_GT(parameters[i].tensor.abs().max().item<double>(), 0.0);
  }
}

TEST(ExpertBank, HiddenWidthIsFourTimesTheWidthUnlessTold) {
  UnitBank::Context context;
  context.width = 6;
  context.tensor_options = torch::TensorOptions().device(torch::kMeta);
  const ExpertBank bank({}, context);
  EXPECT_EQ(parameters_of(bank)[0].tensor.sizes(), (at::IntArrayRef{8, 6, 24}));
}

TEST(ExpertBank, MayDoWithoutBiases) {
  UnitBank::Context context;
  context.width = 6;
  context.tensor_options = torch::TensorOptions().device(torch::kMeta);
  const ExpertBank bank({4, 10, Activation::kRelu, false}, context);
  EXPECT_EQ(parameters_of(bank).size(), 2u);
}

}  // namespace
}  // namespace shoal
