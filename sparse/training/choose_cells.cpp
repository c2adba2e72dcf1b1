#include "sparse/training/choose_cells.h"

#include <string>

#include "runtime/base/error.h"

namespace shoal {

ChooseCells::ChooseCells(const std::vector<std::shared_ptr<SoftCells>>& cells,
                         const SoftChoice& choice, int64_t total_steps, PruneGrow& prune_grow)
    : SoftTraining(cells, {{kMomentPrefix, kSquarePrefix}, kUpdates}),
      cells_(cells),
      choice_(choice),
      prune_grow_(prune_grow) {
  if (choice.until > total_steps) {
    throw ConfigError("sparsity.rule.until: step " + std::to_string(choice.until) +
                      " is behind the end of the training, step " + std::to_string(total_steps) +
                      ", which would leave cells unchosen; set it to 100% or less");
  }
  const size_t num_layers = prune_grow.masks().layers().size();
  TORCH_CHECK(cells.size() == num_layers, "ChooseCells: ", cells.size(), " soft layers of ",
              num_layers);
}

void ChooseCells::after_update(int64_t step, StepTensors& tensors) {
  const torch::NoGradGuard no_grad;
  ++num_updates_;
  for (size_t l = 0; l < cells_.size(); ++l) {
    SoftCells& cells = *cells_[l];
    if (!cells.is_soft()) continue;
    soft_[l].adam.update(cells.score().detach(), soft_[l].gradient, choice_.lr, num_updates_);
    cells.set_temperature(choice_.temperature(step + 1));
    if (!is_ready(cells, step)) continue;
    const torch::Tensor is_best_uC = cells.best();
    prune_grow_.scale_average(l, cells.harden());
    prune_grow_.keep_cells(l, is_best_uC, step, tensors);
  }
  follow_forms();
}

bool ChooseCells::is_ready(const SoftCells& cells, int64_t step) const {
  if (step + 1 >= choice_.until) return true;
  if (cells.weight().is_stacked() || (step + 1) % choice_.check_every != 0) return false;
  return cells.distance().max().item<double>() < choice_.threshold;
}

}  // namespace shoal
