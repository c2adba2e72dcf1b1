#include "moe/nexus/memory_bank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "moe/moe_layer.h"
#include "runtime/options/config_reader.h"
#include "tests/moe/experts/bank_context.h"
#include "tests/support/config_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/moe_layer_fixture.h"

// R rows  D width  K keys of a unit  u units
namespace shoal {
namespace {

using testing::bank_context;
using testing::BankRank;
using ::testing::ElementsAre;
using testing::gradient_error;
using ::testing::HasSubstr;
using testing::LayerCase;
using testing::run_layer_on;
using testing::some_numbers;

std::vector<Parameter> parameters_on(const BankRank& on) {
  const MemoryBank bank({4, 10, 3, NexusVariant::kNormalised},
                        bank_context(6, torch::kFloat32, on));
  std::vector<Parameter> parameters = parameters_of(bank, "blocks.2.nexus.memory");
  initialise(parameters, 5);
  return parameters;
}

TEST(MemoryBank, NamesItsParametersByUnit) {
  const std::vector<Parameter> parameters = parameters_on({1, 3});
  ASSERT_EQ(parameters.size(), 3u);
  EXPECT_EQ(parameters[0].name, "blocks.2.nexus.memory.*.keys");
  EXPECT_EQ(parameters[1].name, "blocks.2.nexus.memory.*.values");
  EXPECT_EQ(parameters[2].name, "blocks.2.nexus.memory.*.log_scale");
  EXPECT_EQ(parameters[0].unit_ids, (std::vector<int64_t>{2}));
  EXPECT_EQ(parameters[1].tensor.sizes(), (std::vector<int64_t>{1, 10, 6}));
  // Matrices decay, scales do not.
  EXPECT_EQ(parameters[0].matrix_dims(), 2);
  EXPECT_LT(parameters[2].matrix_dims(), 2);
}

TEST(MemoryBank, FirstValuesDoNotDependOnWhereAUnitLives) {
  testing::expect_values_by_unit(parameters_on);
}

TEST(MemoryBank, FirstValuesHaveTheScaleOfTheirVariant) {
  const auto first_values = [](NexusVariant variant) {
    const MemoryBank bank({2, 500, 4, variant}, bank_context(64, torch::kFloat32));
    std::vector<Parameter> parameters = parameters_of(bank);
    initialise(parameters, 5);
    std::vector<torch::Tensor> tensors;
    for (const Parameter& parameter : parameters) tensors.push_back(parameter.tensor.detach());
    return tensors;
  };
  const std::vector<torch::Tensor> normalised = first_values(NexusVariant::kNormalised);
  ASSERT_EQ(normalised.size(), 3u);
  EXPECT_LE(normalised[0].abs().max().item<double>(), 0.125);
  EXPECT_NEAR(normalised[0].std().item<double>(), 0.125 / std::sqrt(3.0), 1e-3);
  EXPECT_NEAR(normalised[1].std().item<double>(), 0.125, 1e-3);
  EXPECT_EQ(normalised[2].abs().max().item<double>(), 0.0);
  const std::vector<torch::Tensor> paper = first_values(NexusVariant::kPaper);
  ASSERT_EQ(paper.size(), 2u);
  EXPECT_NEAR(paper[0].std().item<double>(), 1.0, 0.01);
  EXPECT_NEAR(paper[1].std().item<double>(), 1.0, 0.01);
}

TEST(MemoryBank, LooksUpNormalisedRowsWithTheScaleOfTheUnit) {
  MemoryBank bank({2, 9, 3, NexusVariant::kNormalised}, bank_context(6, torch::kFloat64));
  const std::vector<Parameter> parameters = parameters_of(bank);
  initialise(parameters, 5);
  const torch::Tensor keys = parameters[0].tensor.detach(), values = parameters[1].tensor.detach();
  const torch::Tensor log_scale = parameters[2].tensor.detach();
  log_scale.copy_(torch::tensor({0.7, -0.4}).view({2, 1}));
  const torch::Tensor rows = some_numbers({5, 6}, 3);
  const torch::Tensor y = bank.forward(rows, {3, 2});
  for (int64_t r = 0; r < 5; ++r) {
    const int64_t unit = r < 3 ? 0 : 1;
    const torch::Tensor centred = rows[r] - rows[r].mean();
    const torch::Tensor query = centred / (centred.square().mean() + 1e-6).sqrt();
    const auto [score, key] = keys[unit].mv(query).topk(3);
    const torch::Tensor weight = (score * log_scale[unit][0].exp()).softmax(0);
    const torch::Tensor expected = weight.matmul(values[unit].index_select(0, key));
    EXPECT_LT((y[r] - expected).abs().max().item<double>(), 1e-14) << r;
  }
}

TEST(MemoryBank, ThePapersVariantTakesRowsAsTheyAre) {
  MemoryBank bank({1, 9, 3, NexusVariant::kPaper}, bank_context(6, torch::kFloat64));
  const std::vector<Parameter> parameters = parameters_of(bank);
  initialise(parameters, 5);
  const torch::Tensor rows = some_numbers({4, 6}, 3);
  const MemoryTables tables{parameters[0].tensor, parameters[1].tensor, {}};
  EXPECT_TRUE(torch::equal(bank.forward(rows, {4}), memory_lookup(rows, {4}, tables, 3)));
}

TEST(MemoryBank, GradientsAreThoseOfFiniteDifferences) {
  for (const NexusVariant variant : {NexusVariant::kNormalised, NexusVariant::kPaper}) {
    MemoryBank bank({2, 7, 3, variant}, bank_context(5, torch::kFloat64));
    const std::vector<Parameter> parameters = parameters_of(bank);
    initialise(parameters, 5);
    torch::Tensor rows = some_numbers({5, 5}, 3).set_requires_grad(true);
    std::vector<torch::Tensor> inputs{rows};
    for (const Parameter& parameter : parameters) inputs.push_back(parameter.tensor);
    EXPECT_LT(gradient_error([&] { return bank.forward(rows, {2, 3}); }, inputs), 1e-6);
  }
}

LayerCase memory_case() {
  LayerCase test = testing::layer_cases().front();
  test.options.experts =
      Choice<UnitBank>("memory", MemoryBank::Options{4, 11, 3, NexusVariant::kNormalised});
  return test;
}

TEST(MemoryBankRanks, ServesAnyMoeLayerAndParallelEqualsSerial) {
  const testing::LayerResult serial = run_layer_on(memory_case(), 1, 1);
  EXPECT_TRUE(serial.tensors.contains("blocks.1.moe_c.experts.3.keys.grad"));
  for (const auto& [expert_ranks, replicas] :
       {std::pair{2, 1}, std::pair{3, 1}, std::pair{2, 2}, std::pair{4, 1}}) {
    const testing::Difference worst =
        difference(run_layer_on(memory_case(), expert_ranks, replicas), serial);
    EXPECT_LT(worst.value, 1e-12) << expert_ranks << " x " << replicas << ": " << worst.where;
  }
}

std::vector<std::string> bank_mistakes(const std::string& text) {
  return testing::mistakes_of([&] { config::load_options_text<MoeOptions>(text, "r.yaml"); });
}

TEST(MemoryBank, MoreKeysARowThanThereAreAndASingleOneAreConfigErrors) {
  EXPECT_THAT(bank_mistakes("experts: {kind: memory, count: 4, keys: 8, k: 4}"), ElementsAre());
  EXPECT_THAT(bank_mistakes("experts: {kind: memory, keys: 3, k: 4}"),
              ElementsAre(HasSubstr("4 keys per row, but a unit has only 3")));
  EXPECT_THAT(bank_mistakes("experts: {kind: memory, k: 1}"), ElementsAre(HasSubstr("experts.k")));
  EXPECT_THAT(bank_mistakes("experts: {kind: memory, variant: papre}"),
              ElementsAre(HasSubstr("did you mean 'paper'?")));
}

}  // namespace
}  // namespace shoal
