#include "sparse/training/choose_cells.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace shoal {

ChooseCells::ChooseCells(std::vector<std::shared_ptr<SoftCells>> cells, const SoftChoice& choice,
                         int64_t total_steps, PruneGrow& prune_grow)
    : choice_(choice), prune_grow_(prune_grow) {
  if (choice.until > total_steps) {
    throw ConfigError("sparsity.rule.until: step " + std::to_string(choice.until) +
                      " is behind the end of the training, step " + std::to_string(total_steps) +
                      ", which would leave cells unchosen; set it to 100% or less");
  }
  TORCH_CHECK(cells.size() == prune_grow.masks().layers().size(), "ChooseCells: ", cells.size(),
              " soft layers of ", prune_grow.masks().layers().size());
  for (auto& one : cells) soft_.push_back({std::move(one)});
  follow_cells();
}

void ChooseCells::before_norm(int64_t /*step*/, StepTensors& tensors) {
  for (Soft& soft : soft_) {
    if (!soft.cells->is_soft()) continue;
    soft.gradient = take_gradient(soft.cells->score(), soft.cells->name(), tensors);
  }
}

void ChooseCells::after_update(int64_t step, StepTensors& tensors) {
  const torch::NoGradGuard no_grad;
  ++num_updates_;
  for (size_t l = 0; l < soft_.size(); ++l) {
    Soft& soft = soft_[l];
    if (!soft.cells->is_soft()) continue;
    soft.adam.update(soft.cells->score().detach(), soft.gradient, choice_.lr, num_updates_);
    soft.cells->set_temperature(choice_.temperature(step + 1));
    if (!is_ready(*soft.cells, step)) continue;
    const torch::Tensor is_best_uC = soft.cells->best();
    prune_grow_.scale_average(l, soft.cells->harden());
    prune_grow_.keep_cells(l, is_best_uC, step, tensors);
  }
  follow_cells();
}

bool ChooseCells::is_ready(const SoftCells& cells, int64_t step) const {
  if (step + 1 >= choice_.until) return true;
  if (cells.layer().parameter.is_stacked() || (step + 1) % choice_.check_every != 0) return false;
  return cells.distance().max().item<double>() < choice_.threshold;
}

void ChooseCells::visit_state(StateVisitor& visitor) {
  const auto is_soft = [](const Soft& soft) { return soft.cells->is_soft(); };
  if (std::ranges::any_of(soft_, is_soft)) visitor.integer(kUpdates, num_updates_);
  for (Soft& soft : soft_) {
    if (!soft.cells->is_soft()) continue;
    soft.adam.visit_state(visitor, soft.cells->layer().parameter, {kMomentPrefix, kSquarePrefix});
  }
}

void ChooseCells::fit_to(const SavedNames& /*saved*/) { follow_cells(); }

void ChooseCells::tensors_loaded() { follow_cells(); }

void ChooseCells::follow_cells() {
  for (Soft& soft : soft_) {
    if (!soft.cells->is_soft()) {
      soft.adam.end();
      soft.gradient = torch::Tensor();
    } else if (!soft.adam.m.defined()) {
      soft.adam.begin(soft.cells->score().detach());
    }
  }
}

}  // namespace shoal
