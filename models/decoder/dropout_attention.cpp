#include "models/decoder/dropout_attention.h"

#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <limits>

#include "runtime/device/autograd_function.h"
#include "runtime/device/real_types.h"

// B sequences  b sequences of a part  S tokens  N heads  H head width
namespace shoal {
namespace {

/// Maximum number of probabilities in a part, unless a single sequence has more.
constexpr int64_t kPartElements = int64_t{1} << 22;

struct Part {
  torch::Tensor query, key, value;  ///< [b, N, S, H]
  StepContext step;
};

/// Calls run(part, first, b) for all sequences.
template <class Run>
void for_parts(const variable_list& heads, const StepContext& step, const Run& run) {
  const int64_t B = heads[0].size(0), N = heads[0].size(1), S = heads[0].size(2);
  const int64_t sequences = std::max<int64_t>(1, kPartElements / std::max<int64_t>(1, N * S * S));
  for (int64_t first = 0; first < B; first += sequences) {
    const int64_t b = std::min(sequences, B - first);
    const auto of = [&](const torch::Tensor& x) { return x.narrow(0, first, b); };
    run(Part{of(heads[0]), of(heads[1]), of(heads[2]), narrow_samples(step, first, b)}, first, b);
  }
}

/// float32 or float64 [b, N, S, S]
torch::Tensor probabilities_of(const Part& part, double scale) {
  const int64_t S = part.query.size(2);
  const torch::Tensor is_later_SS =
      torch::ones({S, S}, part.query.options().dtype(torch::kBool)).triu_(/*diagonal=*/1);
  const torch::Tensor logits =
      at::matmul(part.query * scale, part.key.transpose(2, 3))
          .masked_fill_(is_later_SS, -std::numeric_limits<double>::infinity());
  return logits.softmax(3, wide_dtype(logits.scalar_type()));
}

struct DropoutAttentionFunction : torch::autograd::Function<DropoutAttentionFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& query,
                               const torch::Tensor& key, const torch::Tensor& value,
                               const DropoutAttention& options) {
    ctx->save_for_backward({query, key, value});
    save_value(ctx, options);
    const auto& [scale, dropout, step] = options;
    torch::Tensor y_BNSH = at::empty_like(query);
    for_parts({query, key, value}, step, [&](const Part& part, int64_t first, int64_t b) {
      torch::Tensor kept = probabilities_of(part, scale);
      kept.masked_fill_(dropout.is_dropped(kept.sizes(), part.step), 0)
          .mul_(1.0 / (1.0 - dropout.rate()));
      y_BNSH.narrow(0, first, b).copy_(at::matmul(kept.to(query.scalar_type()), part.value));
    });
    return y_BNSH;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_second_derivatives();
    const variable_list heads = ctx->get_saved_variables();
    const auto& [scale, dropout, step] = saved_value<DropoutAttention>(ctx);
    const torch::ScalarType dtype = heads[0].scalar_type();
    variable_list result{at::empty_like(heads[0]), at::empty_like(heads[1]),
                         at::empty_like(heads[2]), torch::Tensor()};
    for_parts(heads, step, [&](const Part& part, int64_t first, int64_t b) {
      const torch::Tensor grad = grads[0].narrow(0, first, b);
      const torch::Tensor share = probabilities_of(part, scale);
      const torch::Tensor is_dropped = dropout.is_dropped(share.sizes(), part.step);
      const double factor = 1.0 / (1.0 - dropout.rate());
      const torch::Tensor kept = (share * factor).masked_fill_(is_dropped, 0).to(dtype);
      const torch::Tensor share_grad = at::matmul(grad, part.value.transpose(2, 3))
                                           .to(share.scalar_type())
                                           .mul_(factor)
                                           .masked_fill_(is_dropped, 0);
      const torch::Tensor logits_grad =
          at::_softmax_backward_data(share_grad, share, 3, share.scalar_type())
              .mul_(scale)
              .to(dtype);
      result[0].narrow(0, first, b).copy_(at::matmul(logits_grad, part.key));
      result[1].narrow(0, first, b).copy_(at::matmul(logits_grad.transpose(2, 3), part.query));
      result[2].narrow(0, first, b).copy_(at::matmul(kept.transpose(2, 3), grad));
    });
    return result;
  }
};

}  // namespace

torch::Tensor attend_with_dropout(const torch::Tensor& query_BNSH, const torch::Tensor& key_BNSH,
                                  const torch::Tensor& value_BNSH,
                                  const DropoutAttention& options) {
  return DropoutAttentionFunction::apply(query_BNSH, key_BNSH, value_BNSH, options);
}

}  // namespace shoal
