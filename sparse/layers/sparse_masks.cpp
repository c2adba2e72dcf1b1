#include "sparse/layers/sparse_masks.h"

#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace shoal {

SparseMasks::SparseMasks(std::vector<SparseLayer> layers, bool are_chosen)
    : layers_(std::move(layers)),
      are_chosen_(are_chosen),
      masks_(layers_.size()),
      products_(layers_.size()) {}

void SparseMasks::set_mask(size_t layer, const torch::Tensor& mask) {
  masks_[layer] = mask;
  if (products_[layer]) products_[layer]->set_mask(mask);
}

void SparseMasks::apply() {
  const torch::NoGradGuard no_grad;
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (masks_[l].defined()) layers_[l].parameter.tensor.detach().mul_(masks_[l]);
    if (products_[l]) products_[l]->weights_changed();
  }
}

void SparseMasks::run_by(size_t layer, std::shared_ptr<SparseProduct> product) {
  product->set_mask(masks_[layer]);
  products_[layer] = std::move(product);
}

int64_t SparseMasks::run_by_kernels() const {
  return std::ranges::count_if(
      products_, [](const auto& product) { return product && product->uses_sparse_kernels(); });
}

void SparseMasks::require_fit(bool may_exceed) const {
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (!masks_[l].defined()) continue;
    const Pattern& pattern = *layers_[l].pattern;
    for (int64_t i = 0; i < layers_[l].num_matrices(); ++i) {
      if (pattern.fits(layers_[l].matrix(masks_[l], i), may_exceed)) continue;
      throw Error(ExitCode::kMismatch,
                  layers_[l].name_of(i) + ": its mask does not fit sparsity.pattern and density",
                  "use the sparsity of the checkpoint's recipe");
    }
  }
}

void SparseMasks::visit_state(StateVisitor& visitor) {
  for (size_t l = 0; l < layers_.size(); ++l) visit_mask(l, visitor);
}

void SparseMasks::visit_mask(size_t layer, StateVisitor& visitor) {
  if (!masks_[layer].defined()) return;
  visitor.tensor(state_like(SparseLayer::kMaskPrefix, layers_[layer].parameter, masks_[layer]));
}

void SparseMasks::fit_to(const SavedNames& saved) {
  for (size_t l = 0; l < layers_.size(); ++l) fit_to(l, saved);
}

void SparseMasks::fit_to(size_t layer, const SavedNames& saved) {
  if (layers_[layer].num_matrices() == 0) return;
  if (!saved(SparseLayer::kMaskPrefix + layers_[layer].name_of(0))) {
    if (are_chosen_) masks_[layer] = torch::Tensor();
  } else if (!masks_[layer].defined()) {
    masks_[layer] = at::ones_like(layers_[layer].parameter.tensor.detach(), torch::kBool);
  }
}

void SparseMasks::tensors_loaded() {
  apply();
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (products_[l]) products_[l]->set_mask(masks_[l]);
  }
}

}  // namespace shoal
