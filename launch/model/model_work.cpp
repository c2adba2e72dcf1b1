#include "launch/model/model_work.h"

#include <algorithm>
#include <set>

#include "runtime/module/products.h"

namespace shoal {
namespace {

constexpr double kProductFlops = 2;  // a multiply-add

/// Adds up the products of a model.
class WorkCount {
 public:
  WorkCount(const BuiltModel& model, const std::vector<SparseLayerInfo>& sparse)
      : views_(static_cast<double>(model.task->views())) {
    for (const torch::nn::Module* module : untrained_modules(*model.task)) {
      for (const torch::Tensor& parameter : module->parameters(/*recurse=*/false)) {
        untrained_.insert(parameter.unsafeGetTensorImpl());
      }
    }
    for (const Parameter& parameter : model.parameters) {
      name_[parameter.tensor.unsafeGetTensorImpl()] = parameter.name;
      const auto layer = std::ranges::find(sparse, parameter.name, &SparseLayerInfo::name);
      if (layer == sparse.end()) continue;
      density_[parameter.tensor.unsafeGetTensorImpl()] = layer->reached();
    }
  }

  /// Adds a forward pass. `is_behind_trained`: whether something trained comes before it. Returns
  /// whether something trained comes before its end.
  bool add(const ProductList& list, bool is_behind_trained) {
    work_.routed_numbers += views_ * list.routed_numbers();
    for (const Product& product : list.products()) {
      const torch::Tensor& weight = product.weight;
      const bool is_reached = !untrained_.contains(weight.unsafeGetTensorImpl());
      const bool passes_gradient = is_reached && is_behind_trained;
      // Both factors of a product between activations get one, or none does.
      const bool has_gradient = weight.defined() ? weight.requires_grad() : passes_gradient;
      add(product, kProductFlops * (1 + (has_gradient ? 1 : 0) + (passes_gradient ? 1 : 0)));
      is_behind_trained = is_behind_trained || (has_gradient && is_reached);
    }
    return is_behind_trained;
  }

  const ModelWork& work() const { return work_; }

 private:
  double views_;
  std::set<const void*> untrained_;          ///< weights that no gradient reaches
  std::map<const void*, double> density_;    ///< of sparse weights: the share that is on
  std::map<const void*, std::string> name_;  ///< of the weights' parameters
  ModelWork work_;

  /// `flops`: of a multiply-add.
  void add(const Product& product, double flops) {
    const auto density = density_.find(product.weight.unsafeGetTensorImpl());
    const double multiply_adds =
        views_ * product.multiply_adds * (density == density_.end() ? 1 : density->second);
    work_.multiply_adds += multiply_adds;
    const auto name = name_.find(product.weight.unsafeGetTensorImpl());
    if (name != name_.end()) work_.weight_multiply_adds[name->second] += multiply_adds;
    work_.training_flops += multiply_adds * flops;
    if (product.routed_by.empty()) return;
    work_.routed_training_flops[product.routed_by] += multiply_adds * flops;
  }
};

}  // namespace

std::optional<ModelWork> work_of(const BuiltModel& model,
                                 const std::vector<SparseLayerInfo>& sparse) {
  WorkCount count(model, sparse);
  ProductList head;
  const auto* task = dynamic_cast<const CountsProducts*>(model.task.get());
  if (task != nullptr) task->list_products(1, head);
  bool has_trained = false;
  for (const auto& child : model.task->children()) {
    if (dynamic_cast<const Backbone*>(child.get()) == nullptr) {
      if (task == nullptr) head.visit(*child, 1);
      continue;
    }
    const auto* backbone = dynamic_cast<const CountsProducts*>(child.get());
    if (backbone == nullptr) return std::nullopt;
    ProductList list;
    backbone->list_products(1, list);
    has_trained = count.add(list, false) || has_trained;
  }
  count.add(head, has_trained);
  return count.work();
}

}  // namespace shoal
