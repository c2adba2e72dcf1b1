#include "sparse/training/prune_grow.h"

#include <algorithm>

#include "runtime/random/random.h"

// m outputs  n inputs  u matrices of a stack  C cells
namespace shoal {
namespace {

/// Multiplies the weights by sqrt(n / weights of their row that are on). Without a mask, because
/// cells are chosen softly, by that of the mask to come: at first each weight counts with the
/// density, so that outputs begin smaller and keep their variance once cells are chosen.
void rescale(const SparseLayer& layer, const torch::Tensor& mask) {
  const torch::Tensor weight = layer.parameter.tensor.detach();
  const Pattern& pattern = *layer.pattern;
  const auto columns = static_cast<double>(pattern.columns());
  const double most =
      static_cast<double>(pattern.num_weights()) / static_cast<double>(pattern.rows());
  for (int64_t i = 0; i < layer.num_matrices(); ++i) {
    torch::Tensor on_m1 = torch::full({pattern.rows(), 1}, most, weight.options());
    if (mask.defined()) on_m1.copy_(layer.matrix(mask, i).sum(1, /*keepdim=*/true).clamp_min(1));
    layer.matrix(weight, i).mul_((columns / on_m1).sqrt());
  }
}

}  // namespace

PruneGrow::PruneGrow(SparseMasks& masks, std::shared_ptr<const GrowRule> rule, uint64_t seed,
                     bool rescales)
    : masks_(masks), layers_(masks.layers()), rule_(std::move(rule)), seed_(seed) {
  const torch::NoGradGuard no_grad;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const SparseLayer& layer = layers_[l];
    if (rule_->soft_choice() == nullptr) masks_.set_mask(l, draw_mask(layer));
    if (rule_->stop_overlap()) {
      stopped_.push_back(torch::zeros({layer.num_matrices(), 1},
                                      layer.parameter.tensor.options().dtype(torch::kBool)));
    }
    if (rescales) rescale(layer, masks_.mask(l));
  }
  masks_.apply();
}

torch::Tensor PruneGrow::draw_mask(const SparseLayer& layer) const {
  const torch::Tensor mask = torch::empty_like(layer.parameter.tensor.detach(), torch::kBool);
  for (int64_t i = 0; i < layer.num_matrices(); ++i) {
    const torch::Tensor score_C =
        torch::empty({layer.pattern->num_cells()}, layer.parameter.tensor.options());
    fill_uniform(score_C, stream(layer, i, /*step=*/0));
    layer.matrix(mask, i).copy_(layer.pattern->expand(layer.pattern->choose(score_C)));
  }
  return mask;
}

Stream PruneGrow::stream(const SparseLayer& layer, int64_t index, int64_t step) const {
  return {seed_, Purpose::kSparsePattern, hash_name(layer.name_of(index)),
          static_cast<uint64_t>(step)};
}

std::vector<std::string> PruneGrow::needs_whole_gradients(int64_t step) {
  std::vector<std::string> names;
  for (const SparseLayer& layer : layers_) {
    if (needs_whole_gradient(step, layer)) names.push_back(layer.parameter.name);
  }
  return names;
}

bool PruneGrow::replaces_update(int64_t step) {
  const auto replaces_cells = [&](const SparseLayer& layer) {
    const int64_t on = layer.pattern->num_on();
    return is_due(step, layer) &&
           rule_->counts(step, {on, on, layer.pattern->num_cells()}).grow > 0;
  };
  return rule_->replaces_step() && std::ranges::any_of(layers_, replaces_cells);
}

void PruneGrow::before_forward(int64_t step) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (SparseProduct* product = masks_.product(l)) {
      product->set_dense(needs_whole_gradient(step, layers_[l]));
    }
  }
}

void PruneGrow::before_norm(int64_t /*step*/, StepTensors& tensors) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    // An evaluation after this step takes what one after a resume would.
    if (SparseProduct* product = masks_.product(l)) product->set_dense(false);
    if (!masks_.mask(l).defined()) continue;
    const OptimizerShards::Range range = tensors.gradient(layers_[l].parameter.name);
    range.gradient.mul_(masks_.mask(l).view({-1}).narrow(0, range.begin, range.gradient.numel()));
  }
}

void PruneGrow::after_update(int64_t step, StepTensors& tensors) {
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor> kept = kept_masks(step);
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (!is_due(step, layers_[l])) continue;
    update(l, step, tensors, kept.empty() ? torch::Tensor() : kept[l]);
  }
  masks_.apply();
  for (size_t l = 0; l < layers_.size(); ++l) {
    if (is_due(step, layers_[l])) check_replicas(l, step, tensors);
  }
}

CellState PruneGrow::cells_of(size_t layer_index, int64_t index, int64_t step) const {
  const SparseLayer& layer = layers_[layer_index];
  const Pattern& pattern = *layer.pattern;
  const torch::Tensor weight = layer.parameter.tensor.detach();
  CellState cells;
  cells.weight_C = pattern.pool(layer.matrix(weight, index));
  cells.is_on_C =
      pattern.pool(layer.matrix(masks_.mask(layer_index), index).to(weight.scalar_type())) != 0;
  cells.stream = stream(layer, index, step);
  cells.rows = pattern.rows();
  cells.columns = pattern.columns();
  return cells;
}

CellCounts PruneGrow::counts(const Pattern& pattern, int64_t step, const CellState& cells) const {
  return rule_->counts(
      step, {cells.is_on_C.sum().item<int64_t>(), pattern.num_on(), pattern.num_cells()});
}

std::vector<torch::Tensor> PruneGrow::kept_masks(int64_t step) const {
  if (!rule_->reads_kept() || !is_due(step)) return {};
  std::vector<torch::Tensor> kept;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const SparseLayer& layer = layers_[l];
    kept.push_back(masks_.mask(l).clone());
    for (int64_t i = 0; i < layer.num_matrices(); ++i) {
      if (is_stopped(l, i)) continue;
      const CellState cells = cells_of(l, i, step);
      const int64_t drop = counts(*layer.pattern, step, cells).drop;
      const torch::Tensor kept_C = prune({cells.is_on_C, rule_->keep_score(cells), {}, drop, 0});
      layer.matrix(kept[l], i).copy_(layer.pattern->expand(kept_C));
    }
  }
  if (!rule_->removes_chains()) return kept;
  for (const LayerChain& chain : chains_) remove_chain(chain, step, kept);
  return kept;
}

void PruneGrow::remove_chain(const LayerChain& chain, int64_t step,
                             std::vector<torch::Tensor>& kept) const {
  if (chain.is_soft()) return;
  const int64_t num_matrices = layers_[chain.sides.front().layer].num_matrices();
  for (int64_t i = 0; i < num_matrices; ++i) {
    std::vector<NeuronLinks> links;
    for (const LayerChain::Side& side : chain.sides) {
      const SparseLayer& layer = layers_[side.layer];
      const torch::Tensor kept_mn = layer.matrix(kept[side.layer], i);
      const CellCounts changes = counts(*layer.pattern, step, cells_of(side.layer, i, step));
      links.push_back({side.takes_in ? kept_mn.t() : kept_mn, row_of_neurons(side, i),
                       !is_stopped(side.layer, i) && changes.grow > 0});
    }
    remove_chains(links);
  }
}

torch::Tensor PruneGrow::updated_cells(const Pattern& pattern, int64_t step,
                                       const CellState& cells) const {
  CellCounts counts = this->counts(pattern, step, cells);
  if (counts.drop == 0 && counts.grow == 0) return cells.is_on_C;
  torch::Tensor keep_score_C;
  if (cells.is_kept_C.defined()) {
    // Removed chains are dropped beside what the rule drops, and as many more grow.
    const int64_t removed = (cells.is_on_C & ~cells.is_kept_C).sum().item<int64_t>() - counts.drop;
    counts = {counts.drop + removed, counts.grow + removed};
    keep_score_C = cells.is_kept_C.to(cells.weight_C.scalar_type());
  } else {
    keep_score_C = rule_->keep_score(cells);
  }
  return pattern.update({cells.is_on_C, keep_score_C, rule_->grow_score(cells), counts.drop,
                         counts.grow, rule_->excludes_dropped()});
}

void PruneGrow::stop_if_settled(const torch::Tensor& stopped, const CellState& cells,
                                const torch::Tensor& updated_C) const {
  const torch::Tensor is_grown_C = updated_C & ~cells.is_kept_C;
  const auto grown = static_cast<double>(is_grown_C.sum().item<int64_t>());
  const auto again = static_cast<double>((is_grown_C & cells.is_on_C).sum().item<int64_t>());
  if (grown > 0 && again >= *rule_->stop_overlap() * grown) stopped.fill_(true);
}

void PruneGrow::update(size_t layer_index, int64_t step, StepTensors& tensors,
                       const torch::Tensor& kept) {
  const SparseLayer& layer = layers_[layer_index];
  const Pattern& pattern = *layer.pattern;
  const torch::Tensor weight = layer.parameter.tensor.detach(), mask = masks_.mask(layer_index);
  torch::Tensor gradient;
  if (rule_->needs_gradient()) gradient = tensors.whole_gradient(layer.parameter.name);
  const torch::Tensor updated = mask.clone();
  for (int64_t i = 0; i < layer.num_matrices(); ++i) {
    if (is_stopped(layer_index, i)) continue;
    CellState cells = cells_of(layer_index, i, step);
    if (gradient.defined()) cells.gradient_C = pattern.pool(layer.matrix(gradient, i));
    if (kept.defined()) {
      cells.is_kept_C = pattern.pool(layer.matrix(kept, i).to(weight.scalar_type())) != 0;
    }
    const torch::Tensor updated_C = updated_cells(pattern, step, cells);
    if (!stopped_.empty()) stop_if_settled(stopped_[layer_index][i], cells, updated_C);
    layer.matrix(updated, i).copy_(pattern.expand(updated_C));
  }
  replace_mask(layer_index, updated, tensors);
}

void PruneGrow::replace_mask(size_t layer_index, const torch::Tensor& mask, StepTensors& tensors) {
  const std::string& name = layers_[layer_index].parameter.name;
  const torch::Tensor& before = masks_.mask(layer_index);
  const torch::Tensor stays = before.defined() ? before & mask : mask;
  layers_[layer_index].parameter.tensor.detach().mul_(stays);
  if (average_ != nullptr) average_->average_of(name).mul_(stays);
  for (const std::string& kind : tensors.state_kinds()) {
    tensors.write_state(kind, name, tensors.read_state(kind, name) * stays);
  }
  masks_.set_mask(layer_index, mask);
}

void PruneGrow::scale_average(size_t layer, const torch::Tensor& factor) const {
  if (average_ == nullptr) return;
  average_->average_of(layers_[layer].parameter.name).mul_(factor);
}

void PruneGrow::keep_cells(size_t layer, const torch::Tensor& is_on_uC, int64_t step,
                           StepTensors& tensors) {
  const torch::NoGradGuard no_grad;
  replace_mask(layer, layers_[layer].expand(is_on_uC), tensors);
  check_replicas(layer, step, tensors);
}

void PruneGrow::check_replicas(size_t layer_index, int64_t step, StepTensors& tensors) const {
  const std::string& name = layers_[layer_index].parameter.name;
  require_equal_replicas(
      masks_.mask(layer_index), tensors.replicas(name),
      name + ": its replicas have different masks after step " + std::to_string(step + 1));
}

void PruneGrow::visit_state(StateVisitor& visitor) {
  masks_.visit_state(visitor);
  for (size_t l = 0; l < stopped_.size(); ++l) {
    visit_rows(visitor, kStoppedPrefix, layers_[l].parameter, stopped_[l]);
  }
}

}  // namespace shoal
