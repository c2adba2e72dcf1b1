#include "runtime/module/products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "runtime/module/linear.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;

const torch::TensorOptions kMeta = torch::TensorOptions().device(torch::kMeta);

/// Two layers, 3 -> 5 -> 2, and a scale of its own.
struct Parts : ModuleBase {
  Parts() {
    scale = add_parameter("scale", {2}, kMeta, Init::ones());
    first = register_module("first", Linear(3, 5, kMeta));
    second = register_module("second", Linear(5, 2, kMeta));
  }
  torch::Tensor scale;
  Linear first{nullptr}, second{nullptr};
};

/// Multiplies half of the rows, in four units of 3 x 6 numbers, and mixes all of them.
struct Routed : ModuleBase, CountsProducts {
  Routed() {
    weight = add_stacked_parameter("weight", {3, 6}, kMeta, Init::ones(), {0, 1, 2, 3});
    bias = add_stacked_parameter("bias", {6}, kMeta, Init::ones(), {0, 1, 2, 3});
    shared = register_module("shared", Linear(3, 2, kMeta));
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

std::vector<std::pair<const void*, double>> of(const ProductList& list) {
  std::vector<std::pair<const void*, double>> found;
  for (const Product& product : list.products()) {
    found.emplace_back(product.weight.unsafeGetTensorImpl(), product.multiply_adds);
  }
  return found;
}

const void* id(const torch::Tensor& weight) { return weight.unsafeGetTensorImpl(); }

TEST(ProductList, VisitsChildrenInOrderAndThenTheModulesOwnParameters) {
  const Parts parts;
  ProductList list;
  list.visit(parts, 10);
  EXPECT_THAT(of(list),
              ElementsAre(std::pair(id(parts.first->weight), 10.0 * 3 * 5),
                          std::pair(id(parts.first->bias), 0.0),
                          std::pair(id(parts.second->weight), 10.0 * 5 * 2),
                          std::pair(id(parts.second->bias), 0.0), std::pair(id(parts.scale), 0.0)));
}

TEST(ProductList, AsksTheModuleThatCounts) {
  const Routed routed;
  ProductList list;
  list.visit(routed, 10);
  EXPECT_THAT(of(list),
              ElementsAre(std::pair(id(routed.shared->weight), 10.0 * 3 * 2),
                          std::pair(id(routed.shared->bias), 0.0),
                          std::pair(id(routed.weight), 5.0 * 3 * 6),
                          std::pair(id(routed.bias), 0.0), std::pair(id(torch::Tensor()), 100.0)));
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
  EXPECT_THAT(of(list), ElementsAre(std::pair(id(parts.first->weight), 0.0)));
}

}  // namespace
}  // namespace shoal
