#include "moe/experts/expert_bank.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/moe/experts/bank_context.h"

namespace shoal {
namespace {

using testing::bank_context;
using testing::BankRank;

const torch::TensorOptions kMeta = torch::TensorOptions().device(torch::kMeta);

std::vector<Parameter> parameters_on(const BankRank& on) {
  const ExpertBank bank({4, 10, Activation::kGelu, true}, bank_context(6, torch::kFloat32, on));
  std::vector<Parameter> parameters = parameters_of(bank, "blocks.2.moe_s.experts");
  initialise(parameters, 5);
  return parameters;
}

TEST(ExpertBank, NamesItsParametersByUnit) {
  const std::vector<Parameter> parameters = parameters_on({1, 3});
  ASSERT_EQ(parameters.size(), 4u);
  EXPECT_EQ(parameters[0].name, "blocks.2.moe_s.experts.*.fc1.weight");
  EXPECT_EQ(parameters[1].name, "blocks.2.moe_s.experts.*.fc1.bias");
  EXPECT_EQ(name_of_unit(parameters[2].name, 2), "blocks.2.moe_s.experts.2.fc2.weight");
  EXPECT_EQ(parameters[0].unit_ids, (std::vector<int64_t>{2}));
  EXPECT_EQ(parameters[0].tensor.sizes(), (std::vector<int64_t>{1, 6, 10}));
  EXPECT_EQ(parameters[0].stacked_dims, 1);
}

TEST(ExpertBank, FirstWeightsDoNotDependOnWhereAnExpertLives) {
  testing::expect_values_by_unit(parameters_on);
}

TEST(ExpertBank, WeightsAreXavierUniformByTheFansOfOneExpert) {
  const std::vector<Parameter> parameters = parameters_on({});
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
  const ExpertBank bank({}, bank_context(6, kMeta));
  EXPECT_EQ(parameters_of(bank)[0].tensor.sizes(), (at::IntArrayRef{8, 6, 24}));
}

TEST(ExpertBank, MayDoWithoutBiases) {
  const ExpertBank bank({4, 10, Activation::kRelu, false}, bank_context(6, kMeta));
  EXPECT_EQ(parameters_of(bank).size(), 2u);
}

}  // namespace
}  // namespace shoal
