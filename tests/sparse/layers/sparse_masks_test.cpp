#include "sparse/layers/sparse_masks.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/sparse/patterns/pattern_fixture.h"
#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::some_numbers;

/// Takes down the names that it is shown.
struct Names : StateVisitor {
  std::vector<std::string> names;
  void tensor(const StateTensor& entry) override { names.push_back(entry.name); }
  void integer(const std::string&, int64_t&) override {}
  void real(const std::string&, double&) override {}
  void text(const std::string&, std::string&) override {}
};

/// Two layers of 6 x 4 weights, half of which are on.
struct TwoLayers {
  std::vector<torch::Tensor> weights{some_numbers({6, 4}, 1), some_numbers({6, 4}, 2)};

  std::vector<SparseLayer> layers() const {
    const auto layer = [&](const char* name, const torch::Tensor& weight) {
      return SparseLayer{{name, weight, 0, {}, {}},
                         false,
                         0.5,
                         testing::make_pattern("{name: unstructured}", 6, 4, 0.5)};
    };
    return {layer("a.weight", weights[0]), layer("b.weight", weights[1])};
  }
};

torch::Tensor first_rows(int64_t rows) {
  torch::Tensor mask = torch::zeros({6, 4}, torch::kBool);
  mask.narrow(0, 0, rows).fill_(true);
  return mask;
}

TEST(SparseMasks, AreListedWhereALayerHasOne) {
  const TwoLayers two;
  SparseMasks masks(two.layers());
  Names none;
  masks.visit_state(none);
  EXPECT_TRUE(none.names.empty());
  masks.set_mask(1, first_rows(3));
  Names one;
  masks.visit_state(one);
  EXPECT_EQ(one.names, std::vector<std::string>{"sparsity.mask.b.weight"});
}

TEST(SparseMasks, ZeroTheWeightsThatAreOff) {
  const TwoLayers two;
  SparseMasks masks(two.layers());
  const torch::Tensor before = two.weights[0].clone(), other = two.weights[1].clone();
  masks.set_mask(0, first_rows(3));
  masks.tensors_loaded();
  EXPECT_TRUE(two.weights[0].equal(before * first_rows(3)));
  EXPECT_TRUE(two.weights[1].equal(other));
}

// A layer without one in the checkpoint keeps its mask, but for one whose cells are chosen softly.
TEST(SparseMasks, FitWhatIsSaved) {
  const TwoLayers two;
  const auto saved = [](const std::string& name) { return name == "sparsity.mask.a.weight"; };
  SparseMasks drawn(two.layers()), chosen(two.layers(), /*are_chosen=*/true);
  for (SparseMasks* masks : {&drawn, &chosen}) {
    masks->set_mask(1, first_rows(3));
    masks->fit_to(saved);
    EXPECT_TRUE(masks->mask(0).defined());
  }
  EXPECT_TRUE(drawn.mask(1).equal(first_rows(3)));
  EXPECT_FALSE(chosen.mask(1).defined());
}

TEST(SparseMasks, AreThoseOfThePattern) {
  const TwoLayers two;
  SparseMasks masks(two.layers());
  masks.set_mask(0, first_rows(3));
  EXPECT_NO_THROW(masks.require_fit(/*may_exceed=*/false));
  masks.set_mask(1, first_rows(4));
  EXPECT_THROW(masks.require_fit(/*may_exceed=*/false), Error);
  EXPECT_NO_THROW(masks.require_fit(/*may_exceed=*/true));
}

TEST(SparseMasks, AreFollowedByKernels) {
  const TwoLayers two;
  SparseMasks masks(two.layers());
  const SparseProduct::Layer always{.break_even = SparseProduct::kAlways};
  masks.set_mask(0, first_rows(3));
  for (const size_t layer : {0, 1}) masks.run_by(layer, std::make_shared<SparseProduct>(always));
  EXPECT_EQ(masks.run_by_kernels(), 1);
  masks.set_mask(1, first_rows(3));
  EXPECT_EQ(masks.run_by_kernels(), 2);
}

}  // namespace
}  // namespace shoal
