#include "models/kernels/linear_cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "models/kernels/cross_entropy_rows.h"
#include "runtime/data/batch.h"
#include "runtime/device/autograd_function.h"
#include "runtime/device/real_types.h"
#include "runtime/kernels/bfloat16_rows.h"

// T tokens  C tokens of a chunk  D features  V vocabulary, padded
namespace shoal {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 24;
constexpr int64_t kLeastTokens = 64;

/// The sum of the losses, and the requested gradients.
struct Result {
  torch::Tensor loss, x_TD, weight_VD;
};

/// Arguments shared by all chunks.
struct Call {
  torch::Tensor x_TD, weight_VD;  ///< in the dtype of the products
  torch::Tensor label_T;
  int64_t vocabulary;
  bool x_needs_grad, weight_needs_grad;

  bool needs_grad() const { return x_needs_grad || weight_needs_grad; }
};

/// Sum of the rows' losses; logits are replaced by their gradient if it is needed.
double loss_of_rows_cpu(const torch::Tensor& logits_CV, const torch::Tensor& label_C,
                        const Call& call) {
  const int64_t columns = logits_CV.size(1), vocabulary = call.vocabulary;
  const auto* label = label_C.const_data_ptr<int64_t>();
  std::vector<double> loss_C(static_cast<size_t>(label_C.size(0)));
  for_real_type(logits_CV, "linear_cross_entropy", [&]<class Value, class Sum>(Value, Sum) {
    auto* logits = data<Value>(logits_CV);
    at::parallel_for(0, label_C.size(0), 1, [&](int64_t first, int64_t last) {
      std::vector<Sum> scratch;
      for (int64_t c = first; c < last; ++c) {
        Value* own = logits + c * columns;
        int64_t kept = 0;
        if (label[c] != kNoLabel) {
          kept = vocabulary;
          // A float32 copy for bfloat16, else the logits themselves, which this function owns.
          auto* row = const_cast<Sum*>(wide(own, vocabulary, scratch));
          loss_C[static_cast<size_t>(c)] =
              cross_entropy_row(row, vocabulary, label[c], call.needs_grad());
          if (call.needs_grad()) finish_wide(row, vocabulary, own);
        }
        if (call.needs_grad()) std::fill(own + kept, own + columns, Value{});
      }
    });
  });
  double sum = 0.0;
  for (const double loss : loss_C) sum += loss;
  return sum;
}

/// Loss of rows by LibTorch's operators, on any device.
torch::Tensor loss_of_rows(const torch::Tensor& logits_CV, const torch::Tensor& label_C,
                           const Call& call) {
  const int64_t padding = logits_CV.size(1) - call.vocabulary;
  torch::Tensor wide_CV = logits_CV.to(wide_dtype(logits_CV.scalar_type()));
  wide_CV.narrow(1, call.vocabulary, padding).fill_(-std::numeric_limits<double>::infinity());
  const torch::Tensor is_scored_C = label_C != kNoLabel;
  const torch::Tensor label_C1 = label_C.clamp_min(0).unsqueeze(1);
  const torch::Tensor sum_C = at::logsumexp(wide_CV, {1});
  const torch::Tensor loss_C = sum_C - wide_CV.gather(1, label_C1).squeeze(1);
  if (call.needs_grad()) {
    wide_CV.sub_(sum_C.unsqueeze(1)).exp_();
    wide_CV.scatter_add_(1, label_C1, torch::full_like(label_C1, -1, wide_CV.options()));
    wide_CV.masked_fill_(is_scored_C.logical_not().unsqueeze(1), 0);
    if (!logits_CV.is_same(wide_CV)) logits_CV.copy_(wide_CV);
  }
  return loss_C.masked_fill(is_scored_C.logical_not(), 0).sum(torch::kFloat64);
}

Result compute(const Call& call) {
  const int64_t T = call.x_TD.size(0), V = call.weight_VD.size(0);
  const int64_t chunk = std::min(T, std::max(kLeastTokens, kChunkElements / V));
  const torch::Tensor buffer_CV = torch::empty({chunk, V}, call.x_TD.options());
  const torch::Dtype sum_type = wide_dtype(call.x_TD.scalar_type());
  Result result{torch::zeros({}, call.x_TD.options().dtype(torch::kFloat64)), {}, {}};
  if (call.x_needs_grad) result.x_TD = torch::empty_like(call.x_TD);
  if (call.weight_needs_grad) {
    result.weight_VD =
        torch::zeros(call.weight_VD.sizes(), call.weight_VD.options().dtype(sum_type));
  }
  double loss = 0.0;
  for (int64_t first = 0; first < T; first += chunk) {
    const int64_t count = std::min(chunk, T - first);
    const torch::Tensor x_CD = call.x_TD.narrow(0, first, count);
    const torch::Tensor label_C = call.label_T.narrow(0, first, count);
    torch::Tensor logits_CV = buffer_CV.narrow(0, 0, count);
    at::mm_out(logits_CV, x_CD, call.weight_VD.t());
    if (x_CD.is_cpu()) {
      loss += loss_of_rows_cpu(logits_CV, label_C, call);
    } else {
      result.loss += loss_of_rows(logits_CV, label_C, call);
    }
    if (call.x_needs_grad) {
      torch::Tensor grad_CD = result.x_TD.narrow(0, first, count);
      at::mm_out(grad_CD, logits_CV, call.weight_VD);
    }
    if (call.weight_needs_grad) {
      if (sum_type == x_CD.scalar_type()) {
        result.weight_VD.addmm_(logits_CV.t(), x_CD);
      } else {
        result.weight_VD += at::mm(logits_CV.t(), x_CD);
      }
    }
  }
  result.loss = (result.loss + loss).to(sum_type);
  return result;
}

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight, const torch::Tensor& label,
                               int64_t vocabulary, bool is_differentiated) {
    const Result result = compute(
        {x.contiguous(), weight.to(x.scalar_type()).contiguous(), label.contiguous(), vocabulary,
         is_differentiated && x.requires_grad(), is_differentiated && weight.requires_grad()});
    ctx->save_for_backward({result.x_TD, result.weight_VD});
    ctx->saved_data["dtype"] = weight.scalar_type();
    return result.loss;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    variable_list saved = ctx->get_saved_variables();
    // In place, as they are as large as the weight; version counters detect a second backward.
    for (torch::Tensor& grad : saved) {
      if (grad.defined()) grad.mul_(grads[0]);
    }
    if (saved[1].defined()) saved[1] = saved[1].to(ctx->saved_data["dtype"].toScalarType());
    return {saved[0], saved[1], {}, {}, {}};
  }
};

}  // namespace

torch::Tensor linear_cross_entropy(const torch::Tensor& x_TD, const torch::Tensor& weight_VD,
                                   const torch::Tensor& label_T, int64_t vocabulary) {
  TORCH_CHECK(x_TD.dim() == 2 && weight_VD.dim() == 2 && x_TD.size(1) == weight_VD.size(1),
              "linear_cross_entropy: weight ", weight_VD.sizes(), " does not fit x [T, D] ",
              x_TD.sizes());
  TORCH_CHECK(
      label_T.scalar_type() == torch::kInt64 && label_T.sizes() == at::IntArrayRef{x_TD.size(0)},
      "linear_cross_entropy: expected int64 labels [", x_TD.size(0), "], got ",
      label_T.scalar_type(), " ", label_T.sizes());
  TORCH_CHECK(0 < vocabulary && vocabulary <= weight_VD.size(0),
              "linear_cross_entropy: a vocabulary of ", vocabulary, " does not fit weight ",
              weight_VD.sizes());
  if (label_T.is_cpu()) {
    const torch::Tensor is_good = (label_T == kNoLabel) | ((label_T >= 0) & (label_T < vocabulary));
    TORCH_CHECK(is_good.all().item<bool>(), "linear_cross_entropy: labels must be ", kNoLabel,
                " or in [0, ", vocabulary, ")");
  }
  return LinearCrossEntropyFunction::apply(x_TD, weight_VD, label_T, vocabulary,
                                           at::GradMode::is_enabled());
}

}  // namespace shoal
