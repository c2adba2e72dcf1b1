#include "sparse/prune_grow.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/random/random.h"
#include "sparse/replica_check.h"

// m outputs  n inputs  C cells
namespace shoal {

torch::Tensor SparseLayer::matrix(const torch::Tensor& like_parameter, int64_t index) const {
  const torch::Tensor one = parameter.is_stacked() ? like_parameter[index] : like_parameter;
  const torch::Tensor matrix = one.view({one.size(0), -1});
  return is_transposed ? matrix.t() : matrix;
}

std::string SparseLayer::name_of(int64_t index) const {
  if (!parameter.is_stacked()) return parameter.name;
  return name_of_unit(parameter.name, parameter.unit_ids[static_cast<size_t>(index)]);
}

PruneGrow::PruneGrow(std::vector<SparseLayer> layers, std::shared_ptr<const GrowRule> rule,
                     uint64_t seed, bool rescales)
    : layers_(std::move(layers)), rule_(std::move(rule)), seed_(seed), products_(layers_.size()) {
  const torch::NoGradGuard no_grad;
  for (const SparseLayer& layer : layers_) {
    const torch::Tensor weight = layer.parameter.tensor.detach();
    const torch::Tensor mask = torch::ones_like(weight, torch::kBool);
    masks_.push_back(mask);
    if (weight.is_meta()) continue;
    for (int64_t i = 0; i < layer.num_matrices(); ++i) {
      const torch::Tensor score_C = torch::empty({layer.pattern->num_cells()}, weight.options());
      fill_uniform(score_C, stream(layer, i, /*step=*/0));
      const torch::Tensor is_on_mn = layer.pattern->expand(layer.pattern->choose(score_C));
      layer.matrix(mask, i).copy_(is_on_mn);
      if (!rescales) continue;
      const double columns = static_cast<double>(layer.pattern->columns());
      const torch::Tensor on_m1 = is_on_mn.sum(1, /*keepdim=*/true).clamp_min(1);
      layer.matrix(weight, i).mul_((columns / on_m1.to(weight.scalar_type())).sqrt());
    }
  }
  apply_masks();
}

bool PruneGrow::is_due(int64_t step, const SparseLayer& layer) const {
  return layer.pattern->can_change() && rule_->is_due(step);
}

Stream PruneGrow::stream(const SparseLayer& layer, int64_t index, int64_t step) const {
  return {seed_, Purpose::kSparsePattern, hash_name(layer.name_of(index)),
          static_cast<uint64_t>(step)};
}

bool PruneGrow::needs_whole_gradient(int64_t step, const SparseLayer& layer) const {
  return rule_->needs_gradient() && is_due(step, layer);
}

std::vector<std::string> PruneGrow::needs_whole_gradients(int64_t step) {
  std::vector<std::string> names;
  for (const SparseLayer& layer : layers_) {
    if (needs_whole_gradient(step, layer)) names.push_back(layer.parameter.name);
  }
  return names;
}

bool PruneGrow::replaces_update(int64_t step) {
  return rule_->replaces_step() &&
         std::ranges::any_of(layers_, [&](const auto& layer) { return is_due(step, layer); });
}

void PruneGrow::before_forward(int64_t step) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (products_[l]) products_[l]->set_dense(needs_whole_gradient(step, layers_[l]));
  }
}

void PruneGrow::before_norm(int64_t /*step*/, StepTensors& tensors) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const OptimizerShards::Range range = tensors.gradient(layers_[l].parameter.name);
    range.gradient.mul_(masks_[l].view({-1}).narrow(0, range.begin, range.gradient.numel()));
  }
}

void PruneGrow::after_update(int64_t step, StepTensors& tensors) {
  const torch::NoGradGuard no_grad;
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (is_due(step, layers_[l])) update(l, step, tensors);
  }
  apply_masks();
  check_replicas(step, tensors);
}

torch::Tensor PruneGrow::updated_cells(const Pattern& pattern, int64_t step,
                                       const CellState& cells) const {
  const CellTotals totals{cells.is_on_C.sum().item<int64_t>(), pattern.num_on(),
                          pattern.num_cells()};
  const CellCounts counts = rule_->counts(step, totals);
  if (counts.drop == 0 && counts.grow == 0) return cells.is_on_C;
  return pattern.update({cells.is_on_C, rule_->keep_score(cells), rule_->grow_score(cells),
                         counts.drop, counts.grow, rule_->excludes_dropped()});
}

void PruneGrow::update(size_t layer_index, int64_t step, StepTensors& tensors) {
  const SparseLayer& layer = layers_[layer_index];
  const Pattern& pattern = *layer.pattern;
  const torch::Tensor weight = layer.parameter.tensor.detach(), mask = masks_[layer_index];
  torch::Tensor gradient;
  if (rule_->needs_gradient()) gradient = tensors.whole_gradient(layer.parameter.name);
  const torch::Tensor updated = torch::empty_like(mask);
  for (int64_t i = 0; i < layer.num_matrices(); ++i) {
    CellState cells;
    cells.weight_C = pattern.pool(layer.matrix(weight, i));
    cells.is_on_C = pattern.pool(layer.matrix(mask, i).to(weight.scalar_type())) != 0;
    if (gradient.defined()) cells.gradient_C = pattern.pool(layer.matrix(gradient, i));
    cells.stream = stream(layer, i, step);
    layer.matrix(updated, i).copy_(pattern.expand(updated_cells(pattern, step, cells)));
  }
  const torch::Tensor stays = mask & updated;
  weight.mul_(stays);
  if (average_ != nullptr) average_->average_of(layer.parameter.name).mul_(stays);
  for (const std::string& kind : tensors.state_kinds()) {
    const std::string& name = layer.parameter.name;
    tensors.write_state(kind, name, tensors.read_state(kind, name) * stays);
  }
  masks_[layer_index] = updated;
  if (products_[layer_index]) products_[layer_index]->set_mask(updated);
}

void PruneGrow::check_replicas(int64_t step, StepTensors& tensors) const {
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (!is_due(step, layers_[l])) continue;
    const std::string& name = layers_[l].parameter.name;
    require_equal_replicas(
        masks_[l], tensors.replicas(name),
        name + ": its replicas have different masks after step " + std::to_string(step + 1));
  }
}

void PruneGrow::apply_masks() {
  const torch::NoGradGuard no_grad;
  for (size_t l = 0; l < layers_.size(); ++l) {
    layers_[l].parameter.tensor.detach().mul_(masks_[l]);
    if (products_[l]) products_[l]->weights_changed();
  }
}

void PruneGrow::visit_state(StateVisitor& visitor) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    visitor.tensor(state_like(kPrefix, layers_[l].parameter, masks_[l]));
  }
}

void PruneGrow::tensors_loaded() {
  apply_masks();
  masks_changed();
}

void PruneGrow::masks_changed() {
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (products_[l]) products_[l]->set_mask(masks_[l]);
  }
}

int64_t PruneGrow::run_by_kernels() const {
  return std::ranges::count_if(
      products_, [](const auto& product) { return product && product->is_ever_faster(); });
}

void PruneGrow::run_by(size_t layer, std::shared_ptr<SparseProduct> product) {
  product->set_mask(masks_[layer]);
  products_[layer] = std::move(product);
}

void PruneGrow::require_masks_fit() const {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Pattern& pattern = *layers_[l].pattern;
    for (int64_t i = 0; i < layers_[l].num_matrices(); ++i) {
      const torch::Tensor mask_mn = layers_[l].matrix(masks_[l], i);
      const torch::Tensor is_on_C = pattern.pool(mask_mn.to(torch::kFloat32)) != 0;
      if (pattern.expand(is_on_C).equal(mask_mn) && pattern.holds(is_on_C)) continue;
      throw Error(ExitCode::kMismatch,
                  layers_[l].name_of(i) + ": its mask does not fit sparsity.pattern and density",
                  "use the sparsity of the checkpoint's recipe");
    }
  }
}

}  // namespace shoal
