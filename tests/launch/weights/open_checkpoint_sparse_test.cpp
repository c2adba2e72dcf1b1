#include "launch/weights/open_checkpoint.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/checkpoint_outputs.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/gradient_check.h"
#include "tests/support/run_of_one_step.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using testing::checkpoint_outputs;
using testing::CheckpointOutputs;
using testing::relative_error;

struct SavedCase {
  std::string name;
  std::vector<std::string> overrides;
  int64_t num_by_kernels;
  friend std::ostream& operator<<(std::ostream& out, const SavedCase& test) {
    return out << test.name;
  }
};

class SavedSparseLayers : public ::testing::TestWithParam<SavedCase> {};

// Sums of at most some dozens of products, in another order, in float64.
constexpr double kRoundingOfSums = 1e-12;

// A checkpoint's own execution is sparse.
TEST_P(SavedSparseLayers, OfACheckpointAreRunByKernelsAndGiveItsOutputs) {
  const testing::ScratchFolder scratch;
  std::vector<std::string> overrides = GetParam().overrides;
  overrides.emplace_back("sparsity.execution=sparse");
  const std::string run =
      testing::run_of_steps(testing::equality_recipe(overrides), scratch, /*steps=*/3);
  const CheckpointOutputs sparse = checkpoint_outputs({run});
  const CheckpointOutputs dense =
      checkpoint_outputs({run, false, {"sparsity.execution=masked_dense"}});
  EXPECT_EQ(sparse.num_by_kernels, GetParam().num_by_kernels);
  EXPECT_EQ(dense.num_by_kernels, 0);
  EXPECT_LE(relative_error(sparse.outputs, dense.outputs), kRoundingOfSums);
}

const std::string kDenseVit = testing::vit();

INSTANTIATE_TEST_SUITE_P(
    Of, SavedSparseLayers,
    ::testing::Values(
        SavedCase{"Rows", {kDenseVit, testing::sparse("unstructured")}, 7},
        SavedCase{"RowsWithAverages",
                  {kDenseVit, testing::sparse("unstructured"), "train.average={decay: 0.5}"},
                  7},
        SavedCase{"DiagonalsInRandomOrder",
                  {kDenseVit, testing::sparse("diagonal", "rigl",
                                              "density: 0.4, permutation: {name: random}")},
                  7},
        SavedCase{"BlocksOfASizeWithoutKernel", {kDenseVit, testing::sparse("block, size: 2")}, 7},
        SavedCase{"ButterflyAndLowRank",
                  {kDenseVit,
                   "sparsity={density: 0.75, layers: [mlp], rule: {name: static}, pattern: {name: "
                   "butterfly, grid: 4, low_rank: 0.3}}"},
                  4},
        SavedCase{
            "PermutationsStillSoft",
            {kDenseVit, testing::sparse("unstructured", "set",
                                        "density: 0.5, permutation: {name: learned, until: 100%}")},
            0},
        // No mask yet: cells are chosen in the last of five steps.
        SavedCase{
            "CellsNotChosen",
            {kDenseVit, testing::sparse_by_choice("diagonal", "permutation: {name: none}", "100%")},
            0}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shoal
