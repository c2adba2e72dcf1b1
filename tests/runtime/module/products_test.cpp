#include "runtime/module/products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/module/linear.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;

const torch::TensorOptions kOnMeta = torch::TensorOptions().device(torch::kMeta);

/// Two layers, 3 -> 5 -> 2, and a scale of its own.
struct Parts : ModuleBase {
  Parts() {
    scale = add_parameter("scale", {2}, kOnMeta, Init::ones());
    first = register_module("first", Linear(3, 5, kOnMeta));
    second = register_module("second", Linear(5, 2, kOnMeta));
  }
  torch::Tensor scale;
  Linear first{nullptr}, second{nullptr};
};

/// Multiplies half of the rows, in four units of 3 x 6 numbers, and mixes all of them.
struct Routed : ModuleBase, CountsProducts {
  Routed() {
    weight = add_stacked_parameter("weight", {3, 6}, kOnMeta, Init::ones(), {0, 1, 2, 3});
    bias = add_stacked_parameter("bias", {6}, kOnMeta, Init::ones(), {0, 1, 2, 3});
    shared = register_module("shared", Linear(3, 2, kOnMeta));
  }
  void list_products(double rows, ProductList& list) const override {
    list.visit(*shared, rows);
    list.route("blocks.1.moe", 3 * rows / 2, [&] {
      list.apply(weight, rows / 2);
      list.apply(bias, rows / 2);
    });
    list.between(rows * rows);
  }
  torch::Tensor weight, bias;
  Linear shared{nullptr};
};

std::vector<std::pair<const void*, double>> entries_of(const ProductList& list) {
  std::vector<std::pair<const void*, double>> found;
  for (const Product& product : list.products()) {
    found.emplace_back(product.weight.unsafeGetTensorImpl(), product.multiply_adds);
  }
  return found;
}

const void* impl_of(const torch::Tensor& weight) { return weight.unsafeGetTensorImpl(); }

TEST(ProductList, VisitsChildrenInOrderAndThenTheModulesOwnParameters) {
  const Parts parts;
  ProductList list;
  list.visit(parts, 10);
  EXPECT_THAT(entries_of(list), ElementsAre(std::pair(impl_of(parts.first->weight), 10.0 * 3 * 5),
                                            std::pair(impl_of(parts.first->bias), 0.0),
                                            std::pair(impl_of(parts.second->weight), 10.0 * 5 * 2),
                                            std::pair(impl_of(parts.second->bias), 0.0),
                                            std::pair(impl_of(parts.scale), 0.0)));
}

TEST(ProductList, AsksTheModuleThatCounts) {
  const Routed routed;
  ProductList list;
  list.visit(routed, 10);
  EXPECT_THAT(entries_of(list), ElementsAre(std::pair(impl_of(routed.shared->weight), 10.0 * 3 * 2),
                                            std::pair(impl_of(routed.shared->bias), 0.0),
                                            std::pair(impl_of(routed.weight), 5.0 * 3 * 6),
                                            std::pair(impl_of(routed.bias), 0.0),
                                            std::pair(impl_of(torch::Tensor()), 100.0)));
}

TEST(ProductList, NamesTheStageOfRoutedWeightsAlone) {
  const Routed routed;
  ProductList list;
  list.visit(routed, 10);
  std::vector<std::string> stages;
  for (const Product& product : list.products()) stages.push_back(product.routed_by);
  EXPECT_THAT(stages, ElementsAre("", "", "blocks.1.moe", "blocks.1.moe", ""));
  EXPECT_EQ(list.routed_numbers(), 15.0);
}

TEST(ProductList, CountsNoProductsOfTablesAndNothingWhereAWeightIsUndefined) {
  const Parts parts;
  ProductList list;
  list.apply(parts.first->weight, 0);
  list.apply(torch::Tensor(), 10);
  EXPECT_THAT(entries_of(list), ElementsAre(std::pair(impl_of(parts.first->weight), 0.0)));
}

}  // namespace
}  // namespace shoal
