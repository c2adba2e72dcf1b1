#include "models/blocks/recompute.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>

#include "runtime/device/operator.h"

namespace shoal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Call : torch::CustomClassHolder {
  explicit Call(BlockFunction block) : block(std::move(block)) {}
  BlockFunction block;
  std::vector<MoeStats> moe;  // of the first run
};

variable_list tensors_of(const BlockOutput& output) {
  if (!output.auxiliary_loss.defined()) return {output.y};
  return {output.y, output.auxiliary_loss};
}

struct Recompute : torch::autograd::Function<Recompute> {
  // The anchor has the block's parameters trained where x needs no gradient.
  static variable_list forward(AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& /*anchor*/,
                               const c10::intrusive_ptr<Call>& call) {
    ctx->save_for_backward({x});
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    BlockOutput output = call->block(x);
    call->moe = std::move(output.moe);
    return tensors_of(output);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_second_derivatives();
    const auto capsule = ctx->saved_data["call"].toCapsule();
    const torch::Tensor x =
        ctx->get_saved_variables()[0].detach().requires_grad_(ctx->needs_input_grad(0));
    const torch::AutoGradMode with_grad(true);
    torch::autograd::backward(tensors_of(static_cast<Call*>(capsule.get())->block(x)), grads);
    return {x.grad(), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

BlockOutput run_block(bool recomputes, const torch::Tensor& x, const BlockFunction& block) {
  if (!recomputes || !at::GradMode::is_enabled()) return block(x);
  const auto call = c10::make_intrusive<Call>(block);
  const torch::Tensor anchor = torch::empty({0}).set_requires_grad(true);
  const variable_list outputs = Recompute::apply(x, anchor, call);
  BlockOutput result{outputs[0], {}, std::move(call->moe)};
  if (outputs.size() > 1) result.auxiliary_loss = outputs[1];
  return result;
}

}  // namespace shoal
