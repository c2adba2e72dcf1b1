#include "sparse/layers/soft_cells.h"

#include <utility>

#include "runtime/device/autograd_function.h"
#include "sparse/patterns/best_cells.h"

namespace shoal {
namespace {

constexpr double kNegligibleShare = 0.01;

/// Multiplies each weight by the value of its cell.
struct ScaleCells : torch::autograd::Function<ScaleCells> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& parameter,
                               const torch::Tensor& value_uC, const SparseLayer& layer) {
    const torch::Tensor factor = layer.expand(value_uC);
    ctx->save_for_backward({parameter, factor});
    save_value(ctx, layer);
    return parameter * factor;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &parameter = saved[0], &factor = saved[1];
    const SparseLayer& layer = saved_value<SparseLayer>(ctx);
    const torch::Tensor products = (grads[0] * parameter).contiguous();
    const torch::Tensor sum_uC =
        torch::empty({layer.num_matrices(), layer.pattern->num_cells()}, products.options());
    for (int64_t i = 0; i < layer.num_matrices(); ++i) {
      sum_uC[i].copy_(layer.pattern->sum(layer.matrix(products, i)));
    }
    return {grads[0] * factor, sum_uC, {}};
  }
};

/// Mask of the cells that are computed: 1, and 0 beyond the first 2 K if those are negligible.
torch::Tensor without_negligible(const torch::Tensor& weight_uC, int64_t kept) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor is_first_uC = best_of_rows(weight_uC, 2 * kept);
  const torch::Tensor rest_u1 = weight_uC.masked_fill(is_first_uC, 0).sum(1, /*keepdim=*/true);
  const torch::Tensor counts_u1 = rest_u1 >= kNegligibleShare * weight_uC.sum(1, /*keepdim=*/true);
  return (is_first_uC | counts_u1).to(weight_uC.scalar_type());
}

}  // namespace

SoftCells::SoftCells(SparseLayer layer, double temperature)
    : layer_(std::move(layer)),
      temperature_u_(torch::full({layer_.num_matrices()}, temperature, options())),
      score_uC_(first_scores()) {}

torch::Tensor SoftCells::first_scores() const {
  const int64_t cells = layer_.pattern->num_cells();
  return torch::full({layer_.num_matrices(), cells}, 1.0 / static_cast<double>(cells), options())
      .requires_grad_();
}

torch::Tensor SoftCells::cell_weights() const {
  const int64_t kept = layer_.pattern->num_on();
  const torch::Tensor share_uC = at::softmax(score_uC_ / temperature_u_.unsqueeze(1), 1);
  const torch::Tensor weight_uC = (share_uC * static_cast<double>(kept)).clamp_max(1.0);
  return weight_uC * without_negligible(weight_uC, kept);
}

torch::Tensor SoftCells::best() const {
  return best_of_rows(score_uC_.detach(), layer_.pattern->num_on());
}

torch::Tensor SoftCells::distance() const {
  const torch::NoGradGuard no_grad;
  if (!is_soft()) {
    return torch::zeros({layer_.num_matrices()}, options());
  }
  const torch::Tensor weight_uC = cell_weights();
  return (weight_uC - best().to(weight_uC.scalar_type())).abs().sum(1) /
         static_cast<double>(layer_.pattern->num_on());
}

torch::Tensor SoftCells::harden() {
  const torch::NoGradGuard no_grad;
  torch::Tensor factor = layer_.expand(cell_weights());
  layer_.parameter.tensor.detach().mul_(factor);
  score_uC_ = torch::Tensor();
  return factor;
}

std::vector<torch::Tensor> SoftCells::leaves() const {
  if (!is_soft()) return {};
  return {score_uC_};
}

torch::Tensor SoftCells::apply(const torch::Tensor& parameter) const {
  if (!is_soft()) return parameter;
  return ScaleCells::apply(parameter, cell_weights(), layer_);
}

void SoftCells::visit_state(StateVisitor& visitor) {
  if (!is_soft()) return;
  visit_rows(visitor, kScorePrefix, layer_.parameter, score_uC_.detach());
  visit_rows(visitor, kTemperaturePrefix, layer_.parameter, temperature_u_);
}

void SoftCells::fit_to(const SavedNames& saved) {
  if (layer_.num_matrices() == 0) return;
  const std::string name = layer_.name_of(0);
  if (saved(kScorePrefix + name)) {
    if (!is_soft()) score_uC_ = first_scores();
  } else if (saved(SparseLayer::kMaskPrefix + name)) {
    score_uC_ = torch::Tensor();
  }
}

}  // namespace shoal
