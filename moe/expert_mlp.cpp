#include "moe/expert_mlp.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
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

/// In the order of the operator's and of the node's arguments.
std::array<Tensor, 6> tensors_of(const ExpertWeights& weights) {
  return {weights.fc1_weight, weights.fc1_bias,    weights.fc2_weight,
          weights.fc2_bias,   weights.gate_weight, weights.gate_bias};
}

struct Call {
  std::vector<int64_t> rows_u;  ///< empty where `end_u` says it
  MaybeTensor end_u;
  int64_t activation;
  bool keep;  ///< what backward needs. The caller's to say: gradients are always off in `forward`
};

/// The output, then what backward needs beside rows and weights.
std::vector<Tensor> call_forward(const Tensor& rows, const ExpertWeights& weights,
                                 const Call& call) {
  static const Operator<std::vector<Tensor>(
      const Tensor&, c10::IntArrayRef, const MaybeTensor&, const Tensor&, const MaybeTensor&,
      const Tensor&, const MaybeTensor&, const MaybeTensor&, const MaybeTensor&, int64_t, bool)>
      op("shoal::expert_mlp_forward");
  return op(rows, call.rows_u, call.end_u, weights.fc1_weight, optional_of(weights.fc1_bias),
            weights.fc2_weight, optional_of(weights.fc2_bias), optional_of(weights.gate_weight),
            optional_of(weights.gate_bias), call.activation, call.keep);
}

std::vector<Tensor> call_backward(const Tensor& grad, const std::vector<Tensor>& saved,
                                  const Call& call, bool has_bias, bool needs_rows_grad) {
  static const Operator<std::vector<Tensor>(const Tensor&, at::TensorList, c10::IntArrayRef,
                                            const MaybeTensor&, int64_t, bool, bool)>
      op("shoal::expert_mlp_backward");
  return op(grad.contiguous(), saved, call.rows_u, call.end_u, call.activation, has_bias,
            needs_rows_grad);
}

bool needs_gradient(const Tensor& rows, const ExpertWeights& weights) {
  if (!at::GradMode::is_enabled()) return false;
  if (rows.requires_grad()) return true;
  for (const Tensor& tensor : tensors_of(weights)) {
    if (tensor.defined() && tensor.requires_grad()) return true;
  }
  return false;
}

struct ExpertMlp : torch::autograd::Function<ExpertMlp> {
  static Tensor forward(AutogradContext* ctx, const Tensor& rows, const Tensor& fc1_weight,
                        const MaybeTensor& fc1_bias, const Tensor& fc2_weight,
                        const MaybeTensor& fc2_bias, const MaybeTensor& gate_weight,
                        const MaybeTensor& gate_bias, const Call& call) {
    const ExpertWeights weights{fc1_weight,
                                fc1_bias.value_or(Tensor()),
                                fc2_weight,
                                fc2_bias.value_or(Tensor()),
                                gate_weight.value_or(Tensor()),
                                gate_bias.value_or(Tensor())};
    std::vector<Tensor> kept = call_forward(rows, weights, call);
    const Tensor y = kept.front();
    if (!call.keep) return y;
    kept.front() = rows;
    kept.insert(kept.end(), {fc1_weight, fc2_weight});
    if (gate_weight) kept.push_back(*gate_weight);
    ctx->save_for_backward(std::move(kept));
    ctx->saved_data["rows_u"] = call.rows_u;
    ctx->saved_data["end_u"] = call.end_u;
    ctx->saved_data["activation"] = call.activation;
    ctx->saved_data["has_bias"] = fc1_bias.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const Call call{ctx->saved_data["rows_u"].toIntVector(),
                    ctx->saved_data["end_u"].toOptional<Tensor>(),
                    ctx->saved_data["activation"].toInt(), true};
    variable_list result =
        call_backward(grads[0], ctx->get_saved_variables(), call,
                      ctx->saved_data["has_bias"].toBool(), ctx->needs_input_grad(0));
    result.emplace_back();  // of `call`
    return result;
  }
};

void check_layers(const ExpertWeights& weights, int64_t num_experts, int64_t width) {
  const Tensor& fc1 = weights.fc1_weight;
  const Tensor& fc2 = weights.fc2_weight;
  const Tensor& gate = weights.gate_weight;
  TORCH_CHECK(fc1.dim() == 3 && fc2.dim() == 3 && fc1.size(0) == num_experts &&
                  fc2.size(0) == num_experts && fc1.size(1) == width && fc1.size(2) == fc2.size(1),
              "expert_mlp: weights ", fc1.sizes(), " and ", fc2.sizes(), " for ", num_experts,
              " experts and rows of width ", width);
  TORCH_CHECK(!gate.defined() || gate.sizes() == fc1.sizes(), "expert_mlp: gate ", gate.sizes(),
              " beside a first layer ", fc1.sizes());
}

void check_biases(const ExpertWeights& weights) {
  const bool has_bias = weights.fc1_bias.defined();
  TORCH_CHECK(weights.fc2_bias.defined() == has_bias &&
                  weights.gate_bias.defined() == (has_bias && weights.gate_weight.defined()),
              "expert_mlp: a bias for each layer or for none");
  const auto fits = [](const Tensor& bias, const Tensor& weight) {
    return !bias.defined() || bias.sizes() == at::IntArrayRef({weight.size(0), weight.size(2)});
  };
  TORCH_CHECK(fits(weights.fc1_bias, weights.fc1_weight) &&
                  fits(weights.gate_bias, weights.fc1_weight) &&
                  fits(weights.fc2_bias, weights.fc2_weight),
              "expert_mlp: biases do not fit the weights ", weights.fc1_weight.sizes(), " and ",
              weights.fc2_weight.sizes());
}

void check(const Tensor& rows_RD, int64_t num_experts, const ExpertWeights& weights) {
  TORCH_CHECK(rows_RD.dim() == 2, "expert_mlp: rows must be [R, D], got ", rows_RD.sizes());
  check_layers(weights, num_experts, rows_RD.size(1));
  check_biases(weights);
  for (const Tensor& tensor : tensors_of(weights)) {
    TORCH_CHECK(!tensor.defined() ||
                    (tensor.scalar_type() == rows_RD.scalar_type() && tensor.is_contiguous()),
                "expert_mlp: weights must be contiguous and ", rows_RD.scalar_type());
  }
}

Tensor apply(const Tensor& rows_RD, const ExpertWeights& weights, const Call& call) {
  return ExpertMlp::apply(rows_RD.contiguous(), weights.fc1_weight, optional_of(weights.fc1_bias),
                          weights.fc2_weight, optional_of(weights.fc2_bias),
                          optional_of(weights.gate_weight), optional_of(weights.gate_bias), call);
}

}  // namespace

Tensor expert_mlp(const Tensor& rows_RD, const std::vector<int64_t>& rows_u,
                  const ExpertWeights& weights, Activation activation) {
  check(rows_RD, static_cast<int64_t>(rows_u.size()), weights);
  const int64_t num_rows = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
  TORCH_CHECK(num_rows == rows_RD.size(0), "expert_mlp: the experts have ", num_rows,
              " rows, there are ", rows_RD.size(0));
  return apply(
      rows_RD, weights,
      {rows_u, std::nullopt, static_cast<int64_t>(activation), needs_gradient(rows_RD, weights)});
}

Tensor expert_mlp_on_device(const Tensor& rows_RD, const Tensor& end_u,
                            const ExpertWeights& weights, Activation activation) {
  TORCH_CHECK(end_u.is_cuda() && end_u.dim() == 1 && end_u.scalar_type() == torch::kInt32 &&
                  end_u.is_contiguous(),
              "expert_mlp: ends must be int32 on a GPU, got ", end_u.toString());
  check(rows_RD, end_u.size(0), weights);
  return apply(rows_RD, weights,
               {{}, end_u, static_cast<int64_t>(activation), needs_gradient(rows_RD, weights)});
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "expert_mlp_forward(Tensor rows, int[] rows_per_expert, Tensor? end, Tensor fc1_weight, "
      "Tensor? fc1_bias, Tensor fc2_weight, Tensor? fc2_bias, Tensor? gate_weight, "
      "Tensor? gate_bias, "
      "int activation, bool keep) -> Tensor[]");
  m.def(
      "expert_mlp_backward(Tensor grad, Tensor[] saved, int[] rows_per_expert, Tensor? end, "
      "int activation, bool has_bias, bool needs_rows_grad) -> Tensor[]");
}

}  // namespace shoal
