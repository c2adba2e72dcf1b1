#include "launch/model/sparse_execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "launch/model/sparse_layers.h"
#include "launch/recipe/recipe.h"
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

/// Whether a layer is left to dense products under `auto` whatever its density: a small one, and on
/// GPUs, for which no break-even densities were measured.
bool stays_dense(const SparseLayer& layer) {
  const Pattern& pattern = *layer.pattern;
  return layer.parameter.tensor.is_cuda() ||
         std::min(pattern.rows(), pattern.columns()) < BreakEvens::kLeastSide;
}

/// One for each layer; null where dense products are used.
using SparseProducts = std::vector<std::shared_ptr<SparseProduct>>;

SparseProducts set_products(const Recipe& recipe, const BuiltModel& model,
                            const std::vector<SparseLayer>& layers, const BreakEvens& break_evens) {
  SparseProducts products(layers.size());
  const SparseExecution execution = recipe.sparsity->execution;
  if (execution == SparseExecution::kMaskedDense) return products;
  check_execution(recipe, layers);
  const bool always = execution == SparseExecution::kSparse;
  for (size_t l = 0; l < layers.size(); ++l) {
    const Pattern& pattern = *layers[l].pattern;
    if (obstacle(recipe, layers[l]) || (!always && stays_dense(layers[l]))) continue;
    auto product = make_product(
        layers[l], model, always ? SparseProduct::kAlways : break_evens.of(storage_of(pattern)));
    if (set_product(*model.task, layers[l].parameter, product)) products[l] = std::move(product);
  }
  return products;
}

/// No training multiplies one token by itself: a layer for which kernels are faster only then keeps
/// its fused dense products.
BreakEvens for_training(BreakEvens break_evens) {
  for (BreakEven* one : {&break_evens.rows, &break_evens.diagonals, &break_evens.blocks}) {
    one->one = 0.0;
  }
  return break_evens;
}

/// The masks of a checkpoint for what runs by them; products without one leave their layer to a
/// dense product.
class SavedMasks : public Stateful {
 public:
  SavedMasks(const std::vector<SparseLayer>& layers, const SparseProducts& products,
             const Manifest& manifest) {
    for (size_t l = 0; l < layers.size(); ++l) {
      if (products[l] == nullptr) continue;
      const std::string name = SparseLayer::kMaskPrefix + layers[l].parameter.name;
      if (manifest.find_tensor(name) == nullptr) continue;
      const torch::Tensor weight = layers[l].parameter.tensor.detach();
      masks_.push_back({name, torch::empty_like(weight, torch::kBool), products[l]});
    }
  }

  void visit_state(StateVisitor& visitor) override {
    for (Saved& saved : masks_) visitor.tensor({saved.name, saved.mask});
  }
  void tensors_loaded() override {
    for (const Saved& saved : masks_) saved.product->set_mask(saved.mask);
  }

 private:
  struct Saved {
    std::string name;
    torch::Tensor mask;
    std::shared_ptr<SparseProduct> product;
  };
  std::vector<Saved> masks_;
};

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
  const SparseProducts products =
      set_products(recipe, model, prune_grow.layers(), for_training(break_evens));
  for (size_t l = 0; l < products.size(); ++l) {
    if (products[l]) prune_grow.run_by(l, products[l]);
  }
}

int64_t run_saved_sparse_layers(const Recipe& recipe, const BuiltModel& model,
                                const BreakEvens& break_evens, const LoadedCheckpoint& checkpoint,
                                Communicator& world) {
  if (!recipe.sparsity || recipe.sparsity->execution == SparseExecution::kMaskedDense) return 0;
  const std::vector<SparseLayer> layers = make_sparse_layers(*recipe.sparsity, model);
  const SparseProducts products = set_products(recipe, model, layers, break_evens);
  SavedMasks masks(layers, products, checkpoint.manifest);
  load_checkpoint(checkpoint.path, masks, world, {.ignore_extra = true});
  return std::ranges::count_if(
      products, [](const auto& product) { return product != nullptr && product->is_on(); });
}

}  // namespace shoal
