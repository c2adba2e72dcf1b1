#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/sparse/patterns/pattern_fixture.h"

// m rows  n columns  C cells
namespace shoal {
namespace {

using testing::make_pattern;
using testing::uniform_numbers;

struct PatternCase {
  std::string recipe;
  int64_t rows, columns;
  /// Weights that are on of each of these parts of the matrix; {m, n} = the whole.
  int64_t part_rows, part_columns;
};

void PrintTo(const PatternCase& one, std::ostream* out) {
  *out << one.recipe << " " << one.rows << " x " << one.columns;
}

class PatternProperties : public ::testing::TestWithParam<std::tuple<PatternCase, double>> {
 protected:
  PatternProperties()
      : pattern_(make_pattern(shape().recipe, shape().rows, shape().columns,
                              std::get<double>(GetParam()))) {}

  static const PatternCase& shape() { return std::get<PatternCase>(GetParam()); }

  /// Drops and growths of every kind: usual ones, none, of equal scores, and of all cells, which at
  /// a density above 0.5 are more than those that were off.
  CellUpdate update(int64_t number, const torch::Tensor& is_on_C) const {
    const int64_t cells = pattern_->num_cells();
    CellUpdate update{is_on_C, uniform_numbers(cells, static_cast<uint64_t>(2 * number)),
                      uniform_numbers(cells, static_cast<uint64_t>(2 * number + 1)), 0, 0};
    update.num_drop = update.num_grow = number % 7 * pattern_->num_on() / 12;
    if (number % 5 == 1) update.keep_score_C.fill_(1);
    if (number % 5 == 2) update.grow_score_C.zero_();
    if (number % 11 == 3) update.num_drop = update.num_grow = pattern_->num_on();
    update.excludes_dropped = number % 3 == 0;
    return update;
  }
  void expect_is_of_the_pattern(const torch::Tensor& is_on_C) const {
    const PatternCase& one = shape();
    ASSERT_EQ(is_on_C.sum().item<int64_t>(), pattern_->num_on());
    ASSERT_TRUE(pattern_->holds(is_on_C));
    const torch::Tensor mask_mn = pattern_->expand(is_on_C);
    ASSERT_EQ(mask_mn.sum().item<int64_t>(), pattern_->num_weights());
    ASSERT_TRUE((pattern_->pool(mask_mn.to(torch::kFloat32)) != 0).equal(is_on_C));
    const torch::Tensor on_of_part = mask_mn
                                         .view({one.rows / one.part_rows, one.part_rows,
                                                one.columns / one.part_columns, one.part_columns})
                                         .sum({1, 3});
    ASSERT_EQ(on_of_part.min().item<int64_t>(), on_of_part.max().item<int64_t>());
  }

  std::shared_ptr<const Pattern> pattern_;
};

TEST_P(PatternProperties, CellsSumUpAndShareTheirNumbers) {
  const torch::Tensor number_C = uniform_numbers(pattern_->num_cells(), 3);
  const torch::Tensor sizes_C = pattern_->sum(torch::ones({pattern_->rows(), pattern_->columns()}));
  ASSERT_TRUE(pattern_->sum(pattern_->expand(number_C)).allclose(number_C * sizes_C));
  ASSERT_EQ(sizes_C.sum().item<int64_t>(), pattern_->rows() * pattern_->columns());
}

TEST_P(PatternProperties, HoldOverAThousandUpdates) {
  torch::Tensor is_on_C = pattern_->choose(uniform_numbers(pattern_->num_cells(), 1));
  for (int64_t number = 0; number < 1000; ++number) {
    expect_is_of_the_pattern(is_on_C);
    if (HasFatalFailure()) FAIL() << "before update " << number;
    const CellUpdate one = update(number, is_on_C);
    const torch::Tensor updated = pattern_->update(one);
    if (one.num_drop == 0) {
      ASSERT_TRUE(updated.equal(is_on_C)) << number;
    }
    is_on_C = updated;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, PatternProperties,
    ::testing::Combine(::testing::Values(PatternCase{"{name: unstructured}", 12, 16, 12, 16},
                                         PatternCase{"{name: unstructured}", 1, 16, 1, 16},
                                         PatternCase{"{name: block, size: 4}", 12, 16, 12, 16},
                                         PatternCase{"{name: n_m, of: 4}", 12, 16, 1, 4},
                                         PatternCase{"{name: n_m, of: 4}", 1, 16, 1, 4},
                                         PatternCase{"{name: constant_fan_in}", 12, 16, 1, 16},
                                         PatternCase{"{name: constant_fan_in}", 1, 16, 1, 16},
                                         PatternCase{"{name: diagonal}", 12, 16, 1, 16},
                                         PatternCase{"{name: diagonal}", 16, 12, 16, 1},
                                         PatternCase{"{name: shuffled_block, size: 4}", 12, 16, 12,
                                                     16}),
                       ::testing::Values(0.25, 0.5, 0.75)));

}  // namespace
}  // namespace shoal
