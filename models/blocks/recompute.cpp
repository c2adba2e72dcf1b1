#include "models/blocks/recompute.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "runtime/device/autograd_function.h"
#include "runtime/module/weight_form.h"

namespace shoal {
namespace {

struct Call : torch::CustomClassHolder {
  explicit Call(BlockFunction run) : run(std::move(run)) {}
  BlockFunction run;
  std::vector<MoeStats> moe;  // of the first run
};

variable_list tensors_of(const BlockOutput& output) {
  if (!output.auxiliary_loss.defined()) return {output.y};
  return {output.y, output.auxiliary_loss};
}

variable_list trained_parameters(const torch::nn::Module& block) {
  variable_list trained;
  for (const torch::Tensor& parameter : block.parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  const auto add_leaves = [&trained](const torch::nn::Module& module) {
    const auto* formed = dynamic_cast<const HasWeightForms*>(&module);
    if (formed == nullptr) return;
    for (const torch::Tensor& leaf : formed->form_leaves()) trained.push_back(leaf);
  };
  add_leaves(block);
  for (const auto& module : block.modules(/*include_self=*/false)) add_leaves(*module);
  return trained;
}

/// All leaves that require gradients among those that `outputs` were computed from.
variable_list leaves_of(const variable_list& outputs) {
  variable_list leaves;
  std::unordered_set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open;
  const auto reach = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const torch::Tensor& output : outputs) reach(output.grad_fn().get());
  while (!open.empty()) {
    torch::autograd::Node* node = open.back();
    open.pop_back();
    if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
      leaves.push_back(leaf->variable);
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) reach(edge.function.get());
  }
  return leaves;
}

/// Gradients of `inputs`, undefined for an input that no output depends on. Since all leaves are
/// requested, autograd runs every node of the graph on every rank, including collectives.
variable_list gradients_of(const variable_list& outputs, const variable_list& grads,
                           const variable_list& inputs) {
  variable_list roots, root_grads;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    root_grads.push_back(grads[i]);
  }
  const variable_list leaves = leaves_of(roots);
  // allow_unused for leaves without elements, which have no gradient.
  const variable_list of_leaves =
      torch::autograd::grad(roots, leaves, root_grads, /*retain_graph=*/std::nullopt,
                            /*create_graph=*/false, /*allow_unused=*/true);
  variable_list result(inputs.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    const auto input =
        std::ranges::find_if(inputs, [&](const auto& known) { return known.is_same(leaves[i]); });
    if (input != inputs.end()) {
      result[static_cast<size_t>(input - inputs.begin())] = of_leaves[i];
    } else {
      // Leaves without elements make collectives part of the graph.
      TORCH_CHECK(leaves[i].numel() == 0, "a recomputed block trains a parameter ",
                  leaves[i].sizes(), " of another module");
    }
  }
  return result;
}

struct Recompute : torch::autograd::Function<Recompute> {
  static variable_list forward(AutogradContext* ctx, const torch::Tensor& x,
                               at::TensorList parameters, const c10::intrusive_ptr<Call>& call) {
    variable_list saved{x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    BlockOutput output = call->run(x);
    call->moe = std::move(output.moe);
    return tensors_of(output);
  }

  // Returns the parameters' gradients in place of accumulating them, so that the outer backward
  // pass sums them over all runs of the block before it updates a parameter's gradient.
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_second_derivatives();
    const auto capsule = ctx->saved_data["call"].toCapsule();
    variable_list inputs = ctx->get_saved_variables();
    inputs[0] = inputs[0].detach().requires_grad_(ctx->needs_input_grad(0));
    const torch::AutoGradMode with_grad(true);
    const variable_list outputs = tensors_of(static_cast<Call*>(capsule.get())->run(inputs[0]));
    variable_list result = gradients_of(outputs, grads, inputs);
    result.emplace_back();  // of the call
    return result;
  }
};

}  // namespace

BlockOutput run_block(bool recomputes, const torch::nn::Module& block, const torch::Tensor& x,
                      const BlockFunction& run) {
  if (!recomputes || !at::GradMode::is_enabled()) return run(x);
  const variable_list parameters = trained_parameters(block);
  if (parameters.empty() && !x.requires_grad()) return run(x);  // no backward pass comes here
  const auto call = c10::make_intrusive<Call>(run);
  const variable_list outputs = Recompute::apply(x, at::TensorList(parameters), call);
  BlockOutput result{outputs[0], {}, std::move(call->moe)};
  if (outputs.size() > 1) result.auxiliary_loss = outputs[1];
  return result;
}

}  // namespace shoal
