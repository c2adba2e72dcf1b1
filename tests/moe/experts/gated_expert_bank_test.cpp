#include "moe/experts/expert_bank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/options/config_reader.h"
#include "tests/moe/experts/bank_context.h"
#include "tests/support/gradient_check.h"

// R rows  D width  H hidden width
namespace shoal {
namespace {

using ::testing::ElementsAre;

struct Section {
  Choice<UnitBank> experts;
  static constexpr auto fields() {
    return std::tuple{field("experts", &Section::experts, "the units")};
  }
};

std::shared_ptr<UnitBank> make_bank(const std::string& keys, int64_t width) {
  const auto section =
      config::load_options_text<Section>("experts: {kind: gated" + keys + "}", "test").options;
  return Registry<UnitBank>::create(section.experts, testing::bank_context(width, torch::kFloat64));
}

std::vector<std::string> names_of(const std::vector<Parameter>& parameters) {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters) names.push_back(parameter.name);
  return names;
}

TEST(GatedExpertBank, NamesItsParametersByUnit) {
  EXPECT_THAT(names_of(parameters_of(*make_bank("", 3))),
              ElementsAre("*.gate.weight", "*.fc1.weight", "*.fc2.weight"));
  EXPECT_THAT(names_of(parameters_of(*make_bank(", bias: true", 3))),
              ElementsAre("*.gate.weight", "*.gate.bias", "*.fc1.weight", "*.fc1.bias",
                          "*.fc2.weight", "*.fc2.bias"));
}

TEST(GatedExpertBank, WeightsAreXavierUniformByTheFansOfOneExpert) {
  const auto bank = make_bank(", count: 4, hidden: 10", 6);
  const std::vector<Parameter> parameters = parameters_of(*bank);
  initialise(parameters, 5);
  const double bound = std::sqrt(6.0 / 16.0);
  for (const Parameter& parameter : parameters) {
    EXPECT_LE(parameter.tensor.abs().max().item<double>(), bound) << parameter.name;
    EXPECT_GT(parameter.tensor.abs().max().item<double>(), 0.9 * bound) << parameter.name;
  }
  EXPECT_FALSE(torch::equal(parameters[0].tensor, parameters[1].tensor));
  EXPECT_FALSE(torch::equal(parameters[0].tensor[0], parameters[0].tensor[1]));
}

TEST(GatedExpertBank, HiddenWidthIsFourTimesTheWidthUnlessTold) {
  for (const char* keys : {", count: 2", ", count: 2, hidden: auto"}) {
    EXPECT_EQ(parameters_of(*make_bank(keys, 6))[0].tensor.sizes(), (at::IntArrayRef{2, 6, 24}));
  }
}

TEST(GatedExpertBank, IsSwiGluByDefault) {
  const auto bank = make_bank(", count: 2, hidden: 5", 3);
  const std::vector<Parameter> parameters = parameters_of(*bank);
  initialise(parameters, 6);
  const torch::Tensor x = testing::some_numbers({4, 3}, 1);
  const auto expert = [&](int64_t id, const torch::Tensor& rows) {
    const torch::Tensor gate = torch::silu(rows.matmul(parameters[0].tensor[id]));
    return (gate * rows.matmul(parameters[1].tensor[id])).matmul(parameters[2].tensor[id]);
  };
  const torch::Tensor expected =
      torch::cat({expert(0, x.narrow(0, 0, 3)), expert(1, x[3].view({1, 3}))});
  EXPECT_LT((bank->forward(x, {3, 1}) - expected).abs().max().item<double>(), 1e-14);
}

}  // namespace
}  // namespace shoal
