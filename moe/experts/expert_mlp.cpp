#include "moe/experts/expert_mlp.h"

#include <torch/library.h>

#include <algorithm>
#include <numeric>

#include "runtime/device/autograd_function.h"
#include "runtime/device/operator.h"
#include "runtime/device/real_types.h"

namespace shoal {
namespace {

using torch::Tensor;

constexpr auto kMembers = ExpertWeights::members();
// At least the number of inputs of a node here; autograd ignores surplus undefined gradients.
constexpr size_t kMostInputs = kMembers.size() + 4;

/// The tensors that are defined.
std::vector<Tensor> defined(const ExpertWeights& weights) {
  std::vector<Tensor> list = weights.to_list();
  std::erase_if(list, [](const Tensor& tensor) { return !tensor.defined(); });
  return list;
}

ExpertWeights cast(const ExpertWeights& weights, torch::Dtype dtype) {
  return weights.changed([&](const Tensor& tensor) { return tensor.to(dtype); });
}

}  // namespace

std::vector<Tensor> ExpertWeights::to_list() const {
  std::vector<Tensor> list;
  for (const auto member : kMembers) list.push_back(this->*member);
  return list;
}

ExpertWeights ExpertWeights::of_list(at::TensorList list) {
  TORCH_CHECK(list.size() == kMembers.size(), "expert_mlp: ", list.size(), " tensors, expected ",
              kMembers.size());
  ExpertWeights weights;
  for (size_t i = 0; i < list.size(); ++i) weights.*kMembers[i] = list[i];
  return weights;
}

struct StackGradients {
  ExpertWeights parameters;
  ExpertWeights whole;           ///< their gradients, allocated when the first part writes
  std::vector<bool> is_written;  ///< by expert

  /// The gradients of some experts, to be written.
  std::vector<Tensor> part(const UnitRange& range) {
    ExpertWeights result;
    for (const auto member : kMembers) {
      if (!(parameters.*member).defined()) continue;
      if (!(whole.*member).defined()) whole.*member = torch::empty_like(parameters.*member);
      result.*member = (whole.*member).narrow(0, range.first, range.count);
    }
    const auto first = is_written.begin() + range.first;
    std::fill(first, first + range.count, true);
    return result.to_list();
  }
};

namespace {

struct SplitExperts : torch::autograd::Function<SplitExperts> {
  struct Parts {
    int64_t count;
    std::shared_ptr<StackGradients> gradients;
  };

  static variable_list forward(AutogradContext* ctx, at::TensorList parameters,
                               const Parts& parts) {
    // Not autograd's views, so changes in place until the backward pass are not noticed.
    const at::AutoDispatchBelowADInplaceOrView guard;
    ctx->set_materialize_grads(false);
    save_value(ctx, parts.gradients);
    variable_list result;
    for (int64_t part = 0; part < parts.count; ++part) {
      const UnitRange range = part_of(parameters[0].size(0), part, parts.count);
      for (const Tensor& stack : parameters) {
        result.push_back(stack.narrow(0, range.first, range.count));
      }
    }
    return result;
  }

  // The incoming gradients are undefined: parts wrote into the stack.
  static variable_list backward(AutogradContext* ctx, const variable_list& /*grads*/) {
    refuse_second_derivatives();
    StackGradients& gradients = *saved_value<std::shared_ptr<StackGradients>>(ctx);
    for (size_t expert = 0; expert < gradients.is_written.size(); ++expert) {
      if (gradients.is_written[expert]) continue;
      for (Tensor& unused : gradients.part({static_cast<int64_t>(expert), 1})) {
        if (unused.defined()) unused.zero_();
      }
    }
    variable_list result = defined(gradients.whole);
    result.resize(kMostInputs);
    gradients.whole = {};
    gradients.is_written.assign(gradients.is_written.size(), false);
    return result;
  }
};

struct Call {
  UnitRows rows_u;
  int64_t activation;
  bool keep;  ///< whether a backward pass follows; inside `forward` gradients are always off
  std::optional<RowIndex> index = {};  ///< of expert_mlp_of_tokens
  GradientsOfPart gradients = {};

  const std::vector<int64_t>& host_rows() const {
    static const std::vector<int64_t> none;
    return rows_u.is_on_host() ? rows_u.rows_u() : none;
  }
};

struct ExpertMlp : torch::autograd::Function<ExpertMlp> {
  using Forward = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const MaybeTensor&,
                                                     at::TensorList, c10::IntArrayRef,
                                                     const MaybeTensor&, int64_t, bool);
  using Backward = std::tuple<Tensor, Tensor, std::vector<Tensor>>(const Tensor&, at::TensorList,
                                                                   at::TensorList, at::TensorList,
                                                                   c10::IntArrayRef,
                                                                   const MaybeTensor&, int64_t,
                                                                   bool);

  /// `parameters`: the tensors of `weights` once more, as inputs of the node.
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const MaybeTensor& row_weight,
                        at::TensorList /*parameters*/, ExpertWeights weights, const Call& call) {
    static const Operator<Forward> op("shoal::expert_mlp_forward");
    const Tensor rows = call.index ? gather_rows(x, *call.index) : x;
    auto [y, pre, gate] =
        op(rows, row_weight, cast(weights, x.scalar_type()).to_list(), call.host_rows(),
           optional_of(call.rows_u.end_u()), call.activation, call.keep);
    if (call.index) y = sum_rows(y, *call.index);
    if (!call.keep) return y;
    // Saves tokens, not their rows, which are gathered again, and parameters, not their casts,
    // which take memory and are soon made again. First biases are part of `pre` and `gate`.
    weights.fc1_bias.reset();
    weights.gate_bias.reset();
    variable_list saved = weights.to_list();
    saved.insert(saved.end(), {x, pre, gate, row_weight.value_or(Tensor())});
    ctx->save_for_backward(saved);
    save_value(ctx, call);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    static const Operator<Backward> op("shoal::expert_mlp_backward");
    const variable_list list = ctx->get_saved_variables();
    const at::TensorList weights = at::TensorList(list).slice(0, kMembers.size());
    variable_list saved(list.begin() + kMembers.size(), list.end());
    const Call& call = saved_value<Call>(ctx);
    Tensor grad = grads[0];
    if (call.index) {
      saved[0] = gather_rows(saved[0], *call.index);
      grad = gather_rows(grad, *call.index);
    }
    std::vector<Tensor> into;
    if (call.gradients.stack) into = call.gradients.stack->part(call.gradients.range);
    const ExpertWeights cast_weights =
        cast(ExpertWeights::of_list(weights), saved[0].scalar_type());
    auto [rows_grad, row_weight_grad, weight_grads] =
        op(grad.contiguous(), saved, cast_weights.to_list(), into, call.host_rows(),
           optional_of(call.rows_u.end_u()), call.activation, ctx->needs_input_grad(0));
    if (call.index && rows_grad.defined()) rows_grad = sum_rows(rows_grad, *call.index);
    variable_list result{rows_grad, row_weight_grad};
    // Undefined where they were written into a stack.
    for (const Tensor& tensor : weight_grads) {
      if (tensor.defined()) result.push_back(tensor.to(weights[0].scalar_type()));
    }
    result.resize(kMostInputs);
    return result;
  }
};

bool needs_gradient(const Tensor& rows, const Tensor& row_weight, const ExpertWeights& weights) {
  std::vector<Tensor> inputs = defined(weights);
  inputs.push_back(rows);
  if (row_weight.defined()) inputs.push_back(row_weight);
  return at::GradMode::is_enabled() &&
         std::ranges::any_of(inputs, [](const Tensor& tensor) { return tensor.requires_grad(); });
}

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

void check_dtypes(const Tensor& rows, const ExpertWeights& weights) {
  const torch::Dtype dtype = weights.fc1_weight.scalar_type();
  TORCH_CHECK(dtype == rows.scalar_type() ||
                  (dtype == torch::kFloat32 && rows.scalar_type() == torch::kBFloat16),
              "expert_mlp: weights are ", dtype, ", rows ", rows.scalar_type());
  for (const Tensor& tensor : defined(weights)) {
    TORCH_CHECK(tensor.scalar_type() == dtype && tensor.is_contiguous(),
                "expert_mlp: weights must be contiguous and of one dtype");
  }
}

/// The number of experts.
int64_t check_rows(int64_t num_rows, const UnitRows& rows_u, bool may_follow) {
  if (!rows_u.is_on_host()) {
    TORCH_CHECK(may_follow, "expert_mlp: rows on the CPU, their counts on a GPU");
    return rows_u.end_u().size(0);
  }
  const std::vector<int64_t>& rows = rows_u.rows_u();
  const int64_t expected = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  TORCH_CHECK(may_follow ? expected <= num_rows : expected == num_rows,
              "expert_mlp: the experts have ", expected, " rows, there are ", num_rows);
  return static_cast<int64_t>(rows.size());
}

/// Whether the host has to know the experts' rows.
bool reads_counts(const Tensor& x, int64_t num_experts) {
  static const Operator<bool(const Tensor&, int64_t)> op("shoal::expert_mlp_reads_counts");
  return op(x, num_experts);
}

/// x are rows, or tokens with an index of `num_rows` rows.
Tensor apply(const Tensor& x, int64_t num_rows, const Tensor& row_weight,
             const ExpertWeights& weights, Call call) {
  TORCH_CHECK(x.dim() == 2, "expert_mlp: rows must be [R, D], got ", x.sizes());
  const int64_t num_experts = check_rows(num_rows, call.rows_u, x.is_cuda());
  check_layers(weights, num_experts, x.size(1));
  check_biases(weights);
  check_dtypes(x, weights);
  TORCH_CHECK(!row_weight.defined() || row_weight.sizes() == at::IntArrayRef({num_rows}),
              "expert_mlp: ", row_weight.sizes(), " weights for ", num_rows, " rows");
  if (!call.rows_u.is_on_host() && reads_counts(x, num_experts)) {
    call.rows_u = call.rows_u.to_host();  // once for both passes
  }
  call.keep = needs_gradient(x, row_weight, weights);
  call.gradients = weights.gradients;
  // Rows of fewer bits are computed with in float32, and so are their weights.
  const Tensor wide =
      row_weight.defined() ? row_weight.to(wide_dtype(x.scalar_type())).contiguous() : row_weight;
  return ExpertMlp::apply(x.contiguous(), optional_of(wide), at::TensorList(defined(weights)),
                          weights, call);
}

}  // namespace

std::vector<ExpertWeights> split_experts(const ExpertWeights& weights, int64_t num_parts) {
  const int64_t num_experts = weights.fc1_weight.size(0);
  const auto gradients = std::make_shared<StackGradients>();
  gradients->parameters = weights;
  gradients->is_written.resize(static_cast<size_t>(num_experts), false);
  const variable_list stacks = SplitExperts::apply(at::TensorList(defined(weights)),
                                                   SplitExperts::Parts{num_parts, gradients});
  auto next = stacks.begin();
  std::vector<ExpertWeights> parts;
  for (int64_t p = 0; p < num_parts; ++p) {
    ExpertWeights& part =
        parts.emplace_back(weights.changed([&](const Tensor& /*whole*/) { return *next++; }));
    part.gradients = {gradients, part_of(num_experts, p, num_parts)};
  }
  return parts;
}

Tensor expert_mlp(const Tensor& rows_RD, const UnitRows& rows_u, const ExpertWeights& weights,
                  Activation activation, const Tensor& weight_R) {
  return apply(rows_RD, rows_RD.size(0), weight_R, weights,
               {rows_u, static_cast<int64_t>(activation), /*keep=*/false});
}

Tensor expert_mlp_of_tokens(const Tensor& x_TD, const TokenRows& rows, const ExpertWeights& weights,
                            Activation activation) {
  return apply(x_TD, rows.index.token_A.size(0), rows.weight_A, weights,
               {rows.rows_u, static_cast<int64_t>(activation), /*keep=*/false, rows.index});
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def("expert_mlp_reads_counts(Tensor rows, int num_experts) -> bool");
  m.def(
      "expert_mlp_forward(Tensor rows, Tensor? row_weight, Tensor[] weights, "
      "int[] rows_per_expert, Tensor? end, int activation, bool keep) -> (Tensor, Tensor, Tensor)");
  m.def(
      "expert_mlp_backward(Tensor grad, Tensor[] saved, Tensor[] weights, Tensor(a!)[] into, "
      "int[] rows_per_expert, Tensor? end, int activation, bool needs_rows_grad) -> "
      "(Tensor, Tensor, Tensor[])");
}

}  // namespace shoal
