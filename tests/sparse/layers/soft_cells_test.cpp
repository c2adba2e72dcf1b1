#include "sparse/layers/soft_cells.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/sparse/patterns/pattern_fixture.h"
#include "tests/support/gradient_check.h"

// u matrices of a stack  m outputs  n inputs  C cells
namespace shoal {
namespace {

using testing::gradient_error;
using testing::make_pattern;
using testing::some_numbers;

/// A matrix [m, n], or a stack of u that are stored as [inputs, outputs].
SparseLayer some_layer(const std::string& pattern, std::vector<int64_t> sizes, double density) {
  SparseLayer layer;
  layer.parameter.name = "fc.weight";
  layer.parameter.tensor = some_numbers(sizes, 1).requires_grad_();
  layer.is_transposed = sizes.size() == 3;
  if (layer.is_transposed) {
    layer.parameter.name = "experts.*.fc.weight";
    layer.parameter.stacked_dims = 1;
    for (int64_t unit = 0; unit < sizes[0]; ++unit) layer.parameter.unit_ids.push_back(unit);
    std::swap(sizes[1], sizes[2]);
  }
  layer.density = density;
  layer.pattern = make_pattern(pattern, *(sizes.end() - 2), sizes.back(), density);
  return layer;
}

void set_scores(SoftCells& cells, const torch::Tensor& score_uC) {
  const torch::NoGradGuard no_grad;
  cells.score().detach().copy_(score_uC);
}

TEST(SoftCells, EqualScoresGiveEveryCellTheDensity) {
  const SoftCells cells(some_layer("{name: diagonal}", {4, 8}, 0.25), 5.0);
  EXPECT_TRUE(cells.cell_weights().allclose(torch::full({1, 8}, 0.25, torch::kFloat64)));
  const torch::Tensor weight = cells.layer().parameter.tensor;
  EXPECT_TRUE(cells.apply(weight).allclose(weight * 0.25));
}

TEST(SoftCells, WeightsAreSharesOfASoftmaxTimesKAtMostOne) {
  SoftCells cells(some_layer("{name: diagonal}", {3, 3}, 0.66), 0.5);  // K = 2
  set_scores(cells, torch::tensor({{0.0, 1.0, 0.2}}, torch::kFloat64));
  // exp(0), exp(2), exp(0.4): 1, 7.389056, 1.491825 of 9.880881, times 2: .2024, 1.4956, .3020
  const torch::Tensor expected = torch::tensor({{0.202411, 1.0, 0.301962}}, torch::kFloat64);
  EXPECT_LT((cells.cell_weights() - expected).abs().max().item<double>(), 1e-6);
  EXPECT_TRUE(cells.best().equal(torch::tensor({{false, true, true}})));
  EXPECT_NEAR(cells.distance().item<double>(), (0.202411 + (1.0 - 0.301962)) / 2.0, 1e-6);
}

TEST(SoftCells, CellsWithNextToNothingAreLeftOut) {
  SoftCells cells(some_layer("{name: diagonal}", {4, 4}, 0.25), 1.0);  // K = 1, 2 K = 2
  set_scores(cells, torch::tensor({{9.0, 3.0, 2.9, 0.0}}, torch::kFloat64));
  const torch::Tensor weight_C = cells.cell_weights()[0];
  EXPECT_GT(weight_C[1].item<double>(), 0.0);
  EXPECT_EQ(weight_C[2].item<double>(), 0.0);
  cells.set_temperature(5.0);  // flatter: the third and fourth have more than 1 %
  EXPECT_GT(cells.cell_weights()[0][3].item<double>(), 0.0);
}

TEST(SoftCells, TheChoiceKeepsTheWeightsOfTheBestCells) {
  SoftCells cells(some_layer("{name: block, size: 2}", {4, 4}, 0.5), 1.0);
  set_scores(cells, torch::tensor({{0.1, 0.4, 0.3, 0.2}}, torch::kFloat64));
  const torch::Tensor weight = cells.layer().parameter.tensor;
  const torch::Tensor soft = cells.apply(weight).detach(), best_C = cells.best()[0];
  EXPECT_TRUE(best_C.equal(torch::tensor({false, true, true, false})));
  cells.harden();
  EXPECT_FALSE(cells.is_soft());
  const torch::Tensor mask = cells.layer().pattern->expand(best_C);
  EXPECT_TRUE((cells.apply(weight) * mask).equal(soft * mask));
  EXPECT_EQ(cells.distance().item<double>(), 0.0);
}

/// Gradients of weights and scores, of every kind of layer that has soft cells.
class SoftCellsGradient : public ::testing::TestWithParam<SparseLayer (*)()> {};

TEST_P(SoftCellsGradient, IsThatOfFiniteDifferences) {
  SoftCells cells(GetParam()(), 0.7);
  set_scores(cells, some_numbers(cells.score().sizes(), 2) * 0.3);
  const torch::Tensor weight = cells.layer().parameter.tensor;
  const auto product = [&] { return cells.apply(weight).tanh(); };
  EXPECT_LT(gradient_error(product, {weight, cells.score()}), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, SoftCellsGradient,
                         ::testing::Values(
                             [] {
                               return some_layer("{name: diagonal}", {6, 4}, 0.4);
                             },
                             [] {
                               return some_layer("{name: diagonal}", {4, 6}, 0.4);
                             },
                             [] {
                               return some_layer("{name: block, size: 2}", {4, 6}, 0.4);
                             },
                             [] {
                               return some_layer("{name: diagonal}", {3, 4, 6}, 0.4);
                             }));

TEST(SoftCells, AreNamedUnitByUnit) {
  SoftCells cells(some_layer("{name: diagonal}", {3, 4, 6}, 0.4), 1.0);
  struct Names : StateVisitor {
    std::vector<std::string> names;
    void tensor(const StateTensor& entry) override {
      EXPECT_TRUE(entry.is_stacked);
      EXPECT_EQ(entry.value.size(0), 3);
      names.push_back(entry.name);
    }
    void integer(const std::string&, int64_t&) override {}
    void real(const std::string&, double&) override {}
    void text(const std::string&, std::string&) override {}
  } visitor;
  cells.visit_state(visitor);
  EXPECT_THAT(visitor.names, ::testing::ElementsAre("sparsity.cells.experts.*.fc.weight",
                                                    "sparsity.temperature.experts.*.fc.weight"));
}

TEST(SoftCells, FollowACheckpoint) {
  SoftCells cells(some_layer("{name: diagonal}", {4, 4}, 0.4), 1.0);
  cells.fit_to([](const std::string&) { return false; });  // dense
  EXPECT_TRUE(cells.is_soft());
  cells.fit_to([](const std::string& name) { return name == "sparsity.mask.fc.weight"; });
  EXPECT_FALSE(cells.is_soft());
  cells.fit_to([](const std::string& name) { return name == "sparsity.cells.fc.weight"; });
  EXPECT_TRUE(cells.is_soft());
}

}  // namespace
}  // namespace shoal
