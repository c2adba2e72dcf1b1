#include "sparse/sparse_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/module/extended_weights.h"
#include "runtime/module/weight_form.h"
#include "sparse/layers/low_rank_branch.h"
#include "sparse/training/choose_cells.h"
#include "sparse/training/learn_permutations.h"
#include "sparse/training/prune_grow.h"
#include "sparse/training/sparse_log.h"

namespace shoal {
namespace {

const std::string kRuleKey = "sparsity.rule: ";

/// The recipe's rule, to check patterns against it, for a training of unknown length; null if its
/// own options are wrong, which is reported with the durations.
std::shared_ptr<const GrowRule> rule_of_any_length(const SparsityOptions& options) {
  try {
    constexpr int64_t kSteps = int64_t{1} << 40;
    return Registry<GrowRule>::create(options.rule, {{.samples_per_epoch = 1,
                                                      .samples_per_step = 1,
                                                      .tokens_per_sample = 1,
                                                      .total_steps = kSteps}});
  } catch (const ConfigError&) {
    return nullptr;
  }
}

std::optional<int64_t> span_of(const Pattern& pattern) {
  if (!pattern.limits_span()) return std::nullopt;
  return (pattern.num_weights() + pattern.rows() - 1) / pattern.rows() + pattern.low_rank();
}

int64_t nonzero_weights(const Pattern& pattern) {
  return pattern.num_weights() + pattern.low_rank() * (pattern.rows() + pattern.columns());
}

/// Weights stay whole in memory, with a byte each for the mask.
int64_t bytes_of(const SparseLayer& layer) {
  const Pattern& pattern = *layer.pattern;
  return pattern.rows() * pattern.columns() *
         (static_cast<int64_t>(layer.parameter.tensor.element_size()) + 1);
}

/// Offers something to the modules that may own it, until one takes it.
template <class Owner, class Offer>
bool is_taken(torch::nn::Module& root, const Offer& offer) {
  return std::ranges::any_of(root.modules(), [&](const auto& module) {
    auto* owner = dynamic_cast<Owner*>(module.get());
    return owner != nullptr && offer(*owner);
  });
}

bool set_branch(torch::nn::Module& root, const SparseLayer& layer) {
  const torch::Tensor& weight = layer.parameter.tensor;
  const Pattern& pattern = *layer.pattern;
  const auto branch = std::make_shared<LowRankBranch>(
      pattern.rows(), pattern.columns(), pattern.low_rank(), weight.detach().options());
  return is_taken<ExtendedWeights>(
      root, [&](auto& owner) { return owner.set_branch(weight, "low_rank", branch); });
}

void set_form(torch::nn::Module& root, const Parameter& parameter,
              const std::vector<std::shared_ptr<const WeightForm>>& forms) {
  const auto form = std::make_shared<WeightForms>(forms);
  const auto set = [&](auto& owner) { return owner.set_form(parameter.tensor, form); };
  if (is_taken<HasWeightForms>(root, set)) return;
  throw ConfigError("sparsity: " + parameter.name +
                        " can have neither a permutation nor cells that are chosen softly; leave "
                        "it out of sparsity.layers",
                    ExitCode::kMismatch);
}

/// A momentum encoder follows the weights as they are: it would lack what layers compute from them.
void refuse_followers(const SparseScope& scope, const std::string& what) {
  if (scope.task_of_followers.empty()) return;
  throw ConfigError(
      fmt::format("sparsity.{}, but the momentum encoder of task {} follows only weights and masks",
                  what, scope.task_of_followers));
}

/// Why sparse kernels cannot run a layer; nothing if they can.
std::optional<std::string> obstacle(const SparsityOptions& options, const SparseLayer& layer,
                                    torch::Dtype compute_dtype) {
  if (layer.parameter.is_stacked()) return "it is a stack of experts";
  if (layer.pattern->storage() == MaskStorage::kNone) {
    return fmt::format("there are none for the pattern {}", options.pattern.name());
  }
  if (compute_dtype == torch::kBFloat16) return "they do not compute in bfloat16";
  return std::nullopt;
}

/// How the masks are stored: blocks whose size has no kernel as rows.
MaskStorage storage_of(const Pattern& pattern) {
  const bool are_blocks = pattern.storage() == MaskStorage::kBlocks;
  return are_blocks && !is_block_size(pattern.block_size()) ? MaskStorage::kRows
                                                            : pattern.storage();
}

/// Whether a layer is left to dense products under `auto` whatever its density: a small one, and on
/// GPUs, for which no break-even densities were measured.
bool stays_dense(const SparseLayer& layer) {
  const Pattern& pattern = *layer.pattern;
  return layer.parameter.tensor.is_cuda() ||
         std::min(pattern.rows(), pattern.columns()) < BreakEvens::kLeastSide;
}

}  // namespace

void add_low_rank_branches(const SparsePlan& plan, const SparseScope& scope) {
  std::vector<std::string> mistakes;
  for (const SparseLayer& layer : plan.of(scope.parameters)) {
    if (layer.pattern->low_rank() == 0) continue;
    refuse_followers(scope,
                     "pattern: has a product of low rank beside the masks (low_rank: 0 has none)");
    if (layer.parameter.is_stacked()) {
      mistakes.push_back("sparsity.pattern: " + layer.parameter.name +
                         ": experts have no product of low rank; set low_rank: 0, or name the "
                         "layers without them");
    } else if (!set_branch(scope.root, layer)) {
      mistakes.push_back("sparsity.pattern: " + layer.parameter.name +
                         " can have no product of low rank; set low_rank: 0");
    }
  }
  if (!mistakes.empty()) throw ConfigError(mistakes);
}

SparseModel::SparseModel(const SparsityOptions& options, SparsePlan plan, const SparseScope& scope)
    : options_(options),
      plan_(std::move(plan)),
      root_(scope.root),
      compute_dtype_(scope.compute_dtype),
      seed_(scope.seed),
      rule_(rule_of_any_length(options)),
      masks_(plan_.of(scope.parameters), soft_choice() != nullptr) {
  set_forms(scope);
}

void SparseModel::set_forms(const SparseScope& scope) {
  forms_.permutations = make_permutations();
  const bool are_permuted = !forms_.permutations.empty();
  const SoftChoice* choice = soft_choice();
  if (choice != nullptr) refuse_followers(scope, "rule: chooses cells softly");
  if (are_permuted) {
    refuse_followers(scope, "permutation: permutes layers (name: none does not)");
  }
  for (size_t l = 0; l < layers().size(); ++l) {
    std::vector<std::shared_ptr<const WeightForm>> forms;
    if (choice != nullptr) {
      forms_.soft_cells.push_back(
          std::make_shared<SoftCells>(layers()[l], choice->first_temperature));
      forms.push_back(forms_.soft_cells.back());
    }
    if (are_permuted) forms.push_back(forms_.permutations[l]);
    if (!forms.empty()) set_form(root_, layers()[l].parameter, forms);
  }
}

std::vector<std::shared_ptr<Permutation>> SparseModel::make_permutations() const {
  const auto method = Registry<PermutationMethod>::create(options_.permutation, {});
  const std::optional<PermutationAxis> axis = method->axis();
  std::vector<std::shared_ptr<Permutation>> permutations;
  if (!axis) return permutations;
  std::vector<std::string> mistakes;
  for (const SparseLayer& layer : layers()) {
    const Permutation::Place place{layer.parameter, layer.is_transposed, *axis};
    const size_t before = mistakes.size();
    collect_mistakes(
        [&] { method->check("sparsity.permutation: " + layer.parameter.name, place.size()); },
        mistakes);
    if (mistakes.size() > before) continue;
    permutations.push_back(std::make_shared<Permutation>(place));
    method->begin(*permutations.back(), seed_);
  }
  if (!mistakes.empty()) throw ConfigError(mistakes);
  if (permutations.empty()) {
    throw ConfigError(
        "sparsity.permutation: every layer has a density of 1, and only sparse layers "
        "are permuted; set permutation: {name: none}");
  }
  return permutations;
}

std::vector<SparseLayerInfo> SparseModel::describe() const {
  std::vector<SparseLayerInfo> infos;
  std::vector<std::string> mistakes = execution_mistakes();
  for (size_t l = 0; l < layers().size(); ++l) {
    const SparseLayer& layer = layers()[l];
    const Pattern& pattern = *layer.pattern;
    collect_mistakes(
        [&] {
          if (rule_) rule_->check(pattern, kRuleKey + layer.parameter.name);
        },
        mistakes);
    infos.push_back({layer.parameter.name, pattern.rows(), pattern.columns(),
                     plan_.layers[l].copies, layer.density, nonzero_weights(pattern),
                     pattern.low_rank(), span_of(pattern), 0, bytes_of(layer)});
    if (!forms_.permutations.empty()) {
      infos.back().soft_bytes =
          LearnPermutations::kCopiesOfSoft * forms_.permutations[l]->soft_bytes();
    }
  }
  if (!mistakes.empty()) throw ConfigError(mistakes);
  return infos;
}

SparseState SparseModel::state() {
  SparseState state = forms_;
  state.masks = &masks_;
  for (size_t l = 0; l < layers().size(); ++l) state.masked.push_back(l);
  return state;
}

bool SparseModel::has_soft_forms() const {
  const auto is_soft = [](const auto& form) { return form->is_soft(); };
  return std::ranges::any_of(forms_.soft_cells, is_soft) ||
         std::ranges::any_of(forms_.permutations, is_soft);
}

LayerLogs SparseModel::layer_logs() const {
  if (forms_.permutations.empty() && forms_.soft_cells.empty()) return {};
  return {std::make_shared<SparseLog>(forms_.permutations, forms_.soft_cells)};
}

std::vector<SafetensorsEntry> SparseModel::moments_of(
    const std::vector<SafetensorsEntry>& weights) {
  std::vector<SafetensorsEntry> moments;
  const auto add = [&](const std::string& prefix, const std::string& moment_prefix) {
    for (SafetensorsEntry moment : weights) {
      if (!moment.name.starts_with(prefix)) continue;
      moment.name.replace(0, prefix.size(), moment_prefix);
      moments.insert(moments.end(), 2, moment);
    }
  };
  add(Permutation::kSoftPrefix, LearnPermutations::kMomentPrefix);
  add(SoftCells::kScorePrefix, ChooseCells::kMomentPrefix);
  return moments;
}

void SparseModel::require_masks_fit() const {
  masks_.require_fit(rule_ != nullptr && rule_->may_exceed_density());
}

std::vector<std::string> SparseModel::execution_mistakes() const {
  std::vector<std::string> mistakes;
  if (options_.execution != SparseExecution::kSparse) return mistakes;
  for (const SparseLayer& layer : layers()) {
    if (const auto reason = obstacle(options_, layer, compute_dtype_)) {
      mistakes.push_back(
          fmt::format("sparsity.execution: sparse kernels cannot run {}: {}; set it to auto",
                      layer.parameter.name, *reason));
    }
  }
  return mistakes;
}

void SparseModel::run_by(const BreakEvens& break_evens) {
  if (options_.execution == SparseExecution::kMaskedDense) return;
  const std::vector<std::string> mistakes = execution_mistakes();
  if (!mistakes.empty()) throw ConfigError(mistakes);
  const bool always = options_.execution == SparseExecution::kSparse;
  for (size_t l = 0; l < layers().size(); ++l) {
    const SparseLayer& layer = layers()[l];
    if (obstacle(options_, layer, compute_dtype_) || (!always && stays_dense(layer))) continue;
    const MaskStorage storage = storage_of(*layer.pattern);
    SparseProduct::Layer own{storage, layer.pattern->block_size(), nullptr,
                             always ? SparseProduct::kAlways : break_evens.of(storage)};
    if (!forms_.permutations.empty()) own.permutation = forms_.permutations[l];
    auto product = std::make_shared<SparseProduct>(own);
    const auto set = [&](auto& owner) {
      return owner.set_product(layer.parameter.tensor, product);
    };
    if (is_taken<ExtendedWeights>(root_, set)) masks_.run_by(l, product);
  }
}

std::vector<std::unique_ptr<StepRule>> SparseModel::make_rules(const StepScale& scale,
                                                               const WeightAverage* average) {
  std::vector<std::unique_ptr<StepRule>> rules;
  const auto method = Registry<PermutationMethod>::create(options_.permutation, {});
  if (const LearningOptions* learning = method->learning()) {
    rules.push_back(std::make_unique<LearnPermutations>(forms_.permutations, *learning, scale));
  }
  const std::shared_ptr<const GrowRule> rule = Registry<GrowRule>::create(options_.rule, {scale});
  for (const SparseLayer& layer : layers()) {
    rule->check(*layer.pattern, kRuleKey + layer.parameter.name);
  }
  auto prune_grow = std::make_unique<PruneGrow>(masks_, rule, seed_, options_.rescale);
  prune_grow->remove_chains_of(chain_layers(layers(), forms_.permutations));
  if (average != nullptr) prune_grow->keep_sparse(*average);
  run_by(BreakEvens().for_training());
  if (!forms_.soft_cells.empty()) {
    rules.push_back(std::make_unique<ChooseCells>(forms_.soft_cells, *rule->soft_choice(),
                                                  scale.total_steps, *prune_grow));
  }
  rules.push_back(std::move(prune_grow));
  return rules;
}

}  // namespace shoal
