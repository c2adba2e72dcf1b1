#include "moe/expert_mlp.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <numeric>

#include "runtime/operator.h"

namespace shoal {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using MaybeTensor = std::optional<Tensor>;

MaybeTensor optional_of(const Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : std::nullopt;
}

std::tuple<Tensor, Tensor, Tensor> call_forward(const Tensor& rows, c10::IntArrayRef rows_u,
                                                const ExpertWeights& weights, int64_t activation,
                                                bool keep) {
  static const Operator<std::tuple<Tensor, Tensor, Tensor>(
      const Tensor&, c10::IntArrayRef, const Tensor&, const MaybeTensor&, const Tensor&,
      const MaybeTensor&, int64_t, bool)>
      op("shoal::expert_mlp_forward");
  return op(rows, rows_u, weights.fc1_weight, optional_of(weights.fc1_bias), weights.fc2_weight,
            optional_of(weights.fc2_bias), activation, keep);
}

std::vector<Tensor> call_backward(const Tensor& grad, const std::vector<Tensor>& saved,
                                  c10::IntArrayRef rows_u, bool has_bias, bool needs_rows_grad) {
  static const Operator<std::vector<Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                            const Tensor&, const Tensor&, const Tensor&,
                                            c10::IntArrayRef, bool, bool)>
      op("shoal::expert_mlp_backward");
  return op(grad.contiguous(), saved[0], saved[1], saved[2], saved[3], saved[4], rows_u, has_bias,
            needs_rows_grad);
}

bool needs_gradient(const Tensor& rows, const ExpertWeights& weights) {
  if (!at::GradMode::is_enabled()) return false;
  for (const Tensor& tensor :
       {rows, weights.fc1_weight, weights.fc1_bias, weights.fc2_weight, weights.fc2_bias}) {
    if (tensor.defined() && tensor.requires_grad()) return true;
  }
  return false;
}

struct ExpertMlp : torch::autograd::Function<ExpertMlp> {
  /// keep: what backward needs. Asked by the caller, since gradients are always off in here.
  static Tensor forward(AutogradContext* ctx, const Tensor& rows, const Tensor& fc1_weight,
                        const MaybeTensor& fc1_bias, const Tensor& fc2_weight,
                        const MaybeTensor& fc2_bias, const std::vector<int64_t>& rows_u,
                        int64_t activation, bool keep) {
    const ExpertWeights weights{fc1_weight, fc1_bias.value_or(Tensor()), fc2_weight,
                                fc2_bias.value_or(Tensor())};
    auto [y, hidden, slope] = call_forward(rows, rows_u, weights, activation, keep);
    if (!keep) return y;
    ctx->save_for_backward({rows, hidden, slope, fc1_weight, fc2_weight});
    ctx->saved_data["rows_u"] = rows_u;
    ctx->saved_data["has_bias"] = fc1_bias.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const bool has_bias = ctx->saved_data["has_bias"].toBool();
    const std::vector<Tensor> result =
        call_backward(grads[0], ctx->get_saved_variables(), ctx->saved_data["rows_u"].toIntVector(),
                      has_bias, ctx->needs_input_grad(0));
    // rows, fc1 weight and bias, fc2 weight and bias; none for the plain arguments.
    return {result[0], result[1], result[2], result[3], result[4], Tensor(), Tensor(), Tensor()};
  }
};

void check_weights(const Tensor& rows_RD, const std::vector<int64_t>& rows_u,
                   const ExpertWeights& weights) {
  const auto num_experts = static_cast<int64_t>(rows_u.size());
  TORCH_CHECK(rows_RD.dim() == 2, "expert_mlp: rows must be [R, D], got ", rows_RD.sizes());
  const int64_t width = rows_RD.size(1);
  const Tensor& fc1 = weights.fc1_weight;
  const Tensor& fc2 = weights.fc2_weight;
  TORCH_CHECK(fc1.dim() == 3 && fc2.dim() == 3 && fc1.size(0) == num_experts &&
                  fc2.size(0) == num_experts && fc1.size(1) == width && fc1.size(2) == fc2.size(1),
              "expert_mlp: weights ", fc1.sizes(), " and ", fc2.sizes(), " for ", num_experts,
              " experts and rows of width ", width);
  TORCH_CHECK(weights.fc1_bias.defined() == weights.fc2_bias.defined(),
              "expert_mlp: both biases or none");
  TORCH_CHECK(!weights.fc1_bias.defined() ||
                  (weights.fc1_bias.sizes() == at::IntArrayRef({num_experts, fc1.size(2)}) &&
                   weights.fc2_bias.sizes() == at::IntArrayRef({num_experts, fc2.size(2)})),
              "expert_mlp: biases do not fit the weights ", fc1.sizes(), " and ", fc2.sizes());
  for (const Tensor& tensor : {fc1, weights.fc1_bias, fc2, weights.fc2_bias}) {
    TORCH_CHECK(!tensor.defined() ||
                    (tensor.scalar_type() == rows_RD.scalar_type() && tensor.is_contiguous()),
                "expert_mlp: weights must be contiguous and ", rows_RD.scalar_type());
  }
}

}  // namespace

Tensor expert_mlp(const Tensor& rows_RD, const std::vector<int64_t>& rows_u,
                  const ExpertWeights& weights, Activation activation) {
  check_weights(rows_RD, rows_u, weights);
  const int64_t num_rows = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
  TORCH_CHECK(num_rows == rows_RD.size(0), "expert_mlp: the experts have ", num_rows,
              " rows, there are ", rows_RD.size(0));
  return ExpertMlp::apply(rows_RD.contiguous(), weights.fc1_weight, optional_of(weights.fc1_bias),
                          weights.fc2_weight, optional_of(weights.fc2_bias), rows_u,
                          static_cast<int64_t>(activation), needs_gradient(rows_RD, weights));
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "expert_mlp_forward(Tensor rows, int[] rows_per_expert, Tensor fc1_weight, Tensor? fc1_bias, "
      "Tensor fc2_weight, Tensor? fc2_bias, int activation, bool keep) -> (Tensor, Tensor, "
      "Tensor)");
  m.def(
      "expert_mlp_backward(Tensor grad, Tensor rows, Tensor hidden, Tensor slope, "
      "Tensor fc1_weight, Tensor fc2_weight, int[] rows_per_expert, bool has_bias, "
      "bool needs_rows_grad) -> Tensor[]");
}

}  // namespace shoal
