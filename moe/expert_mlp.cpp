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

/// In the order of the operator's and of the node's arguments.
std::array<Tensor, 6> tensors_of(const ExpertWeights& weights) {
  return {weights.fc1_weight, weights.fc1_bias,    weights.fc2_weight,
          weights.fc2_bias,   weights.gate_weight, weights.gate_bias};
}

/// The weights in the dtype of the rows; themselves where that is theirs.
ExpertWeights cast(ExpertWeights weights, torch::Dtype dtype) {
  for (Tensor* tensor : {&weights.fc1_weight, &weights.fc1_bias, &weights.fc2_weight,
                         &weights.fc2_bias, &weights.gate_weight, &weights.gate_bias}) {
    if (tensor->defined()) *tensor = tensor->to(dtype);
  }
  return weights;
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

std::vector<Tensor> call_weighted_backward(const Tensor& grad, const std::vector<Tensor>& saved,
                                           const Call& call, const Tensor& weight,
                                           const MaybeTensor& fc2_bias) {
  static const Operator<std::vector<Tensor>(const Tensor&, at::TensorList, c10::IntArrayRef,
                                            int64_t, const Tensor&, const MaybeTensor&, bool)>
      op("shoal::expert_mlp_weighted_backward");
  return op(grad, saved, call.rows_u, call.activation, weight, fc2_bias, true);
}

bool needs_gradient(const Tensor& rows, const ExpertWeights& weights) {
  if (!at::GradMode::is_enabled()) return false;
  if (rows.requires_grad()) return true;
  for (const Tensor& tensor : tensors_of(weights)) {
    if (tensor.defined() && tensor.requires_grad()) return true;
  }
  return false;
}

/// What backward needs of the weights: the parameters themselves. What they were cast to would
/// stand in memory beside them, and is soon made again.
void keep_weights(std::vector<Tensor>& kept, const ExpertWeights& weights) {
  kept.insert(kept.end(), {weights.fc1_weight, weights.fc2_weight});
  if (weights.gate_weight.defined()) kept.push_back(weights.gate_weight);
}

/// What was kept, cast; what is of this dtype already stays.
std::vector<Tensor> cast(std::vector<Tensor> kept, torch::Dtype dtype) {
  for (Tensor& tensor : kept) tensor = tensor.to(dtype);
  return kept;
}

/// Gradients of weights in the weights' dtype: results 1 to 6 of a backward operator.
void cast_weight_gradients(std::vector<Tensor>& result, torch::Dtype dtype) {
  for (size_t i = 1; i <= 6; ++i) {
    if (result[i].defined()) result[i] = result[i].to(dtype);
  }
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
    std::vector<Tensor> kept = call_forward(rows, cast(weights, rows.scalar_type()), call);
    const Tensor y = kept.front();
    if (!call.keep) return y;
    kept.front() = rows;
    keep_weights(kept, weights);
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
    const variable_list saved = ctx->get_saved_variables();
    variable_list result =
        call_backward(grads[0], cast(saved, saved.front().scalar_type()), call,
                      ctx->saved_data["has_bias"].toBool(), ctx->needs_input_grad(0));
    cast_weight_gradients(result, saved.back().scalar_type());
    result.emplace_back();  // of `call`
    return result;
  }
};

/// combine_rows(expert_mlp(gather_rows(x))) as one node, which keeps neither the rows nor what the
/// experts say of them.
struct ExpertMlpOfTokens : torch::autograd::Function<ExpertMlpOfTokens> {
  struct TokenCall {
    Call call;
    RowIndex index;
  };

  static Tensor forward(AutogradContext* ctx, const Tensor& x_TD, const Tensor& weight_A,
                        const Tensor& fc1_weight, const MaybeTensor& fc1_bias,
                        const Tensor& fc2_weight, const MaybeTensor& fc2_bias,
                        const MaybeTensor& gate_weight, const MaybeTensor& gate_bias,
                        const TokenCall& tokens) {
    const ExpertWeights weights{fc1_weight,
                                fc1_bias.value_or(Tensor()),
                                fc2_weight,
                                fc2_bias.value_or(Tensor()),
                                gate_weight.value_or(Tensor()),
                                gate_bias.value_or(Tensor())};
    const RowIndex& index = tokens.index;
    std::vector<Tensor> kept =
        call_forward(gather_rows(x_TD, index), cast(weights, x_TD.scalar_type()), tokens.call);
    const Tensor y_TO = combine_rows(kept.front(), weight_A, index);
    if (!tokens.call.keep) return y_TO;
    kept.front() = x_TD;
    keep_weights(kept, weights);
    kept.insert(kept.end(),
                {weights.fc2_bias, weight_A, index.token_A, index.first_T1, index.row_A});
    ctx->save_for_backward(std::move(kept));
    ctx->saved_data["rows_u"] = tokens.call.rows_u;
    ctx->saved_data["activation"] = tokens.call.activation;
    return y_TO;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    variable_list saved = ctx->get_saved_variables();
    const size_t num_kept = saved.size() - 5;
    const Tensor fc2_bias = saved[num_kept], weight_A = saved[num_kept + 1];
    const RowIndex index{saved[num_kept + 2], saved[num_kept + 3], saved[num_kept + 4]};
    saved.resize(num_kept);
    const torch::Dtype dtype = saved.front().scalar_type(), own = saved.back().scalar_type();
    const Call call{ctx->saved_data["rows_u"].toIntVector(), std::nullopt,
                    ctx->saved_data["activation"].toInt(), true};
    const Tensor wide_A = weight_A.to(dtype == torch::kFloat64 ? dtype : torch::kFloat32);
    saved.front() = gather_rows(saved.front(), index);
    std::vector<Tensor> result = call_weighted_backward(
        gather_rows(grads[0], index), cast(std::move(saved), dtype), call, wide_A.contiguous(),
        optional_of(fc2_bias.defined() ? fc2_bias.to(dtype) : fc2_bias));
    cast_weight_gradients(result, own);
    const Tensor weight_grad_A = result.back().to(weight_A.scalar_type());
    result.pop_back();
    // Each token's sum over its rows.
    result.front() = combine_rows(result.front(), torch::ones_like(wide_A), index);
    result.insert(result.begin() + 1, weight_grad_A);
    result.emplace_back();  // of `tokens`
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
  const torch::Dtype dtype = weights.fc1_weight.scalar_type();
  TORCH_CHECK(dtype == rows_RD.scalar_type() ||
                  (dtype == torch::kFloat32 && rows_RD.scalar_type() == torch::kBFloat16),
              "expert_mlp: weights are ", dtype, ", rows ", rows_RD.scalar_type());
  for (const Tensor& tensor : tensors_of(weights)) {
    TORCH_CHECK(!tensor.defined() || (tensor.scalar_type() == dtype && tensor.is_contiguous()),
                "expert_mlp: weights must be contiguous and of one dtype");
  }
}

void check_rows(int64_t num_rows, const std::vector<int64_t>& rows_u) {
  const int64_t expected = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
  TORCH_CHECK(expected == num_rows, "expert_mlp: the experts have ", expected, " rows, there are ",
              num_rows);
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
  check_rows(rows_RD.size(0), rows_u);
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

Tensor expert_mlp_of_tokens(const Tensor& x_TD, const TokenRows& rows, const ExpertWeights& weights,
                            Activation activation) {
  if (!x_TD.is_cpu()) {
    const Tensor rows_RD = gather_rows(x_TD, rows.index);
    return combine_rows(expert_mlp(rows_RD, rows.rows_u.rows_u(), weights, activation),
                        rows.weight_A, rows.index);
  }
  check(x_TD, static_cast<int64_t>(rows.rows_u.rows_u().size()), weights);
  check_rows(rows.weight_A.size(0), rows.rows_u.rows_u());
  const bool keep = needs_gradient(x_TD, weights) ||
                    (at::GradMode::is_enabled() && rows.weight_A.requires_grad());
  const Call call{rows.rows_u.rows_u(), std::nullopt, static_cast<int64_t>(activation), keep};
  return ExpertMlpOfTokens::apply(
      x_TD.contiguous(), rows.weight_A, weights.fc1_weight, optional_of(weights.fc1_bias),
      weights.fc2_weight, optional_of(weights.fc2_bias), optional_of(weights.gate_weight),
      optional_of(weights.gate_bias), ExpertMlpOfTokens::TokenCall{call, rows.index});
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
  m.def(
      "expert_mlp_weighted_backward(Tensor grad, Tensor[] saved, int[] rows_per_expert, "
      "int activation, Tensor row_weight, Tensor? fc2_bias, bool needs_rows_grad) -> Tensor[]");
}

}  // namespace shoal
