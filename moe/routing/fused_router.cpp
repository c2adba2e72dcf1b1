#include "moe/routing/fused_router.h"

#include <torch/library.h>

#include "runtime/device/autograd_function.h"
#include "runtime/device/operator.h"

// T tokens  U units  K choices
namespace shoal {
namespace {

using torch::Tensor;

constexpr int64_t kMostFusedUnits = 256, kMostChoices = 8;

using ChooseForward = variable_list(const Tensor&, const MaybeTensor&, int64_t, int64_t, int64_t);
using ChooseBackward = Tensor(const MaybeTensor&, const MaybeTensor&, at::TensorList, int64_t,
                              int64_t);

struct FusedRouter : torch::autograd::Function<FusedRouter> {
  static variable_list forward(AutogradContext* ctx, const Tensor& logits_TU,
                               const MaybeTensor& bias_U, const FusedRouterOptions& options) {
    static const Operator<ChooseForward> op("shoal::fused_router");
    const auto score = static_cast<int64_t>(options.score);
    const auto normalise = static_cast<int64_t>(options.normalise);
    // As FusedChoices.
    variable_list out = op(logits_TU, bias_U, options.k, score, normalise);
    ctx->save_for_backward({out[0], out[1], out[3]});
    ctx->saved_data["score"] = score;
    ctx->saved_data["normalise"] = normalise;
    ctx->mark_non_differentiable({out[1], out[2], out[4]});
    ctx->set_materialize_grads(false);
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    static const Operator<ChooseBackward> op("shoal::fused_router_backward");
    const auto contiguous = [](const Tensor& grad) {
      return grad.defined() ? MaybeTensor(grad.contiguous()) : std::nullopt;
    };
    return {op(contiguous(grads[0]), contiguous(grads[3]), ctx->get_saved_variables(),
               ctx->saved_data["score"].toInt(), ctx->saved_data["normalise"].toInt()),
            Tensor(), Tensor()};
  }
};

}  // namespace

bool can_fuse_router(const Tensor& logits_TU, int64_t k) {
  const bool is_real =
      logits_TU.scalar_type() == torch::kFloat32 || logits_TU.scalar_type() == torch::kFloat64;
  return logits_TU.is_cuda() && is_real && logits_TU.size(1) <= kMostFusedUnits &&
         k <= kMostChoices;
}

FusedChoices fused_router(const Tensor& logits_TU, const Tensor& bias_U,
                          const FusedRouterOptions& options) {
  TORCH_CHECK(logits_TU.dim() == 2 && options.k >= 1 && options.k <= logits_TU.size(1) &&
                  can_fuse_router(logits_TU, options.k),
              "fused_router: ", options.k, " of the columns of ", logits_TU.sizes(), " ",
              logits_TU.scalar_type(), " on ", logits_TU.device());
  TORCH_CHECK(!bias_U.defined() || (bias_U.sizes() == at::IntArrayRef{logits_TU.size(1)} &&
                                    bias_U.scalar_type() == logits_TU.scalar_type()),
              "fused_router: a bias ", bias_U.sizes(), " for logits ", logits_TU.sizes());
  const variable_list out =
      FusedRouter::apply(logits_TU.contiguous(), optional_of(bias_U), options);
  return {out[0], out[1], out[2], out[3], out[4]};
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def("fused_router(Tensor logits, Tensor? bias, int k, int score, int normalise) -> Tensor[]");
  m.def(
      "fused_router_backward(Tensor? score_grad, Tensor? weight_grad, Tensor[] saved, int score, "
      "int normalise) -> Tensor");
}

}  // namespace shoal
