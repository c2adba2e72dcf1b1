#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

namespace shoal {

/// A weight that a forward pass applies, or a product between activations, such as attention's.
struct Product {
  torch::Tensor weight = {};   ///< undefined: between activations
  double multiply_adds = 0;    ///< 0 of what scales, is added or looked up
  std::string routed_by = {};  ///< path of the MoE stage whose unit has the weight; empty: of none
};

/// The products of one view of a sample, in the order of the forward pass: a product passes
/// gradients on if a trained weight was applied before it.
class ProductList {
 public:
  /// Adds a weight that multiplies `rows` rows; a stack of routed units' weights: the rows of all
  /// units together. A vector, which scales or is added, counts no product. 0 rows: a table, or a
  /// matrix that is added. An undefined weight is left out.
  void apply(const torch::Tensor& weight, double rows);
  /// Adds a product between activations; of masked attention only the pairs that are computed.
  void between(double multiply_adds);
  /// Adds what a module lists, by default as visit_parts.
  void visit(const torch::nn::Module& module, double rows);
  /// Adds the children of a module in order, then its own parameters.
  void visit_parts(const torch::nn::Module& module, double rows);
  /// Runs `list_units`, which adds the weights of the units that the MoE stage at `path` routes
  /// rows to. `numbers`: how many there are in all these rows.
  void route(const std::string& path, double numbers, const std::function<void()>& list_units);

  const std::vector<Product>& products() const { return products_; }
  /// Numbers in the rows that routed units get.
  double routed_numbers() const { return routed_numbers_; }

 private:
  std::vector<Product> products_;
  std::string routed_by_;  ///< of the weights that are added
  double routed_numbers_ = 0;
};

/// A module that multiplies other rows than it is given, or activations with each other. A module
/// that does neither needs no list: it is visited part by part.
class CountsProducts {
 public:
  virtual ~CountsProducts() = default;
  /// Adds the module's products to `list`. `rows`: those that it is given of one view of a sample,
  /// usually the tokens; for a bank of units the rows of all of them; for a backbone, and for a
  /// task, which lists its head alone, 1: they know their tokens.
  virtual void list_products(double rows, ProductList& list) const = 0;
};

}  // namespace shoal
