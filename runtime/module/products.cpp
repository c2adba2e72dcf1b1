#include "runtime/module/products.h"

namespace shoal {

void ProductList::apply(const torch::Tensor& weight, double rows) {
  if (!weight.defined()) return;
  const bool is_stacked = !routed_by_.empty();
  at::IntArrayRef matrix = weight.sizes();
  if (is_stacked) matrix = matrix.slice(1);
  const bool multiplies = matrix.size() >= 2;
  products_.push_back(
      {weight, multiplies ? rows * static_cast<double>(c10::multiply_integers(matrix)) : 0.0,
       routed_by_});
}

void ProductList::between(double multiply_adds) { products_.push_back({{}, multiply_adds, {}}); }

void ProductList::visit(const torch::nn::Module& module, double rows) {
  if (const auto* counts = dynamic_cast<const CountsProducts*>(&module)) {
    counts->list_products(rows, *this);
  } else {
    visit_parts(module, rows);
  }
}

void ProductList::visit_parts(const torch::nn::Module& module, double rows) {
  for (const auto& child : module.children()) visit(*child, rows);
  for (const torch::Tensor& parameter : module.parameters(/*recurse=*/false)) {
    apply(parameter, rows);
  }
}

void ProductList::route(const std::string& path, double numbers,
                        const std::function<void()>& list_units) {
  routed_numbers_ += numbers;
  routed_by_ = path;
  list_units();
  routed_by_.clear();
}

}  // namespace shoal
