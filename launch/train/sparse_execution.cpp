#include "launch/train/sparse_execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/module/linear_product.h"

namespace shoal {
namespace {

/// Why sparse kernels cannot run a layer; nothing if they can.
std::optional<std::string> obstacle(const Recipe& recipe, const SparseLayer& layer) {
  if (layer.parameter.is_stacked()) return "it is a stack of experts";
  if (layer.pattern->storage() == MaskStorage::kNone) {
    return fmt::format("there are none for the pattern {}", recipe.sparsity->pattern.name());
  }
  if (compute_dtype_of(recipe) == torch::kBFloat16) return "they do not compute in bfloat16";
  if (recipe.run.device == DeviceKind::kCuda || layer.parameter.tensor.is_cuda()) {
    return "there are none on GPUs";
  }
  return std::nullopt;
}

/// How the masks are stored: blocks whose size has no kernel as rows.
MaskStorage storage_of(const Pattern& pattern) {
  const bool are_blocks = pattern.storage() == MaskStorage::kBlocks;
  return are_blocks && !is_block_size(pattern.block_size()) ? MaskStorage::kRows
                                                            : pattern.storage();
}

std::shared_ptr<SparseProduct> make_product(const SparseLayer& layer, const BuiltModel& model,
                                            const BreakEven& break_even) {
  SparseProduct::Layer own{storage_of(*layer.pattern), layer.pattern->block_size(), nullptr,
                           break_even};
  const auto found = std::ranges::find(model.permutations, layer.parameter.name,
                                       [](const auto& permutation) { return permutation->name(); });
  if (found != model.permutations.end()) own.permutation = *found;
  return std::make_shared<SparseProduct>(own);
}

bool set_product(Task& task, const Parameter& parameter,
                 const std::shared_ptr<const LinearProduct>& product) {
  return std::ranges::any_of(task.modules(), [&](const auto& module) {
    auto* owner = dynamic_cast<HasLinearProduct*>(module.get());
    return owner != nullptr && owner->set_product(parameter.tensor, product);
  });
}

bool is_large(const Pattern& pattern) {
  return std::min(pattern.rows(), pattern.columns()) >= BreakEvens::kLeastSide;
}

}  // namespace

void check_execution(const Recipe& recipe, const std::vector<SparseLayer>& layers) {
  if (recipe.sparsity->execution != SparseExecution::kSparse) return;
  std::vector<std::string> mistakes;
  for (const SparseLayer& layer : layers) {
    if (const auto reason = obstacle(recipe, layer)) {
      mistakes.push_back(
          fmt::format("sparsity.execution: sparse kernels cannot run {}: {}; set it to auto",
                      layer.parameter.name, *reason));
    }
  }
  if (!mistakes.empty()) throw ConfigError(mistakes);
}

void run_sparse_layers(const Recipe& recipe, const BuiltModel& model, const BreakEvens& break_evens,
                       PruneGrow& prune_grow) {
  const SparseExecution execution = recipe.sparsity->execution;
  if (execution == SparseExecution::kMaskedDense) return;
  const std::vector<SparseLayer>& layers = prune_grow.layers();
  check_execution(recipe, layers);
  const bool always = execution == SparseExecution::kSparse;
  for (size_t l = 0; l < layers.size(); ++l) {
    const Pattern& pattern = *layers[l].pattern;
    if (obstacle(recipe, layers[l]) || !(always || is_large(pattern))) continue;
    auto product = make_product(
        layers[l], model, always ? SparseProduct::kAlways : break_evens.of(storage_of(pattern)));
    if (set_product(*model.task, layers[l].parameter, product)) {
      prune_grow.run_by(l, std::move(product));
    }
  }
}

}  // namespace shoal
