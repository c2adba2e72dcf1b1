#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

namespace shoal {

/// A weight that a forward pass applies, or a product between activations, as in attention. The
/// metric `mfu` (model FLOPs utilisation) is computed from the multiply-adds of such products.
struct Product {
  torch::Tensor weight = {};   ///< undefined for a product between activations
  double multiply_adds = 0;    ///< 0 for weights that scale, are added or looked up
  std::string routed_by = {};  ///< path of the MoE layer that routes rows to the weight; else empty
};

/// The products of one sample, or of one augmented view of it, in the order of the forward pass.
/// The order matters: gradients flow through a product only if a trained weight comes before it.
/// `rows` below: rows (tokens) of one sample that a weight or module gets.
class ProductList {
 public:
  /// Adds a weight that multiplies `rows` rows; for a stack of routed experts, the rows of all
  /// experts together. A vector, such as a bias, is listed with 0 multiply-adds. Pass 0 rows for a
  /// lookup table or a matrix that is added. An undefined weight is ignored.
  void apply(const torch::Tensor& weight, double rows);
  /// Adds a product between activations. For masked attention, count unmasked pairs alone.
  void between(double multiply_adds);
  /// Adds a module: calls its list_products if it derives from CountsProducts, else visit_parts.
  void visit(const torch::nn::Module& module, double rows);
  /// Adds the children of a module in order, then its own parameters.
  void visit_parts(const torch::nn::Module& module, double rows);
  /// Calls `list_units`, which adds the weights of the units (experts, memory units) that the MoE
  /// layer at `path` routes rows to. `numbers`: elements of all routed rows, rows times width.
  void route(const std::string& path, double numbers, const std::function<void()>& list_units);

  const std::vector<Product>& products() const { return products_; }
  /// Sum of `numbers` over the route calls, from which the memory of all-to-alls is estimated.
  double routed_numbers() const { return routed_numbers_; }

 private:
  std::vector<Product> products_;
  std::string routed_by_;  ///< path given to the running route call
  double routed_numbers_ = 0;
};

/// A module that multiplies activations with each other, or applies weights to another number of
/// rows than it gets. Other modules need no list: their parameters and children are visited.
class CountsProducts {
 public:
  virtual ~CountsProducts() = default;
  /// Adds the module's products for one sample to `list`. `rows`: rows that the module gets,
  /// usually the tokens; for a bank of experts the rows of all experts together. A backbone or task
  /// gets rows = 1 and works out its number of tokens itself. A task lists its head only.
  virtual void list_products(double rows, ProductList& list) const = 0;
};

}  // namespace shoal
