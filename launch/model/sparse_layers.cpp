#include "launch/model/sparse_layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "launch/model/layer_chains.h"
#include "launch/model/sparse_execution.h"
#include "models/vision/patch_embed.h"
#include "moe/experts/unit_bank.h"
#include "moe/routing/router.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/module/linear.h"
#include "sparse/layer_density.h"
#include "sparse/layers/low_rank_branch.h"

namespace shoal {
namespace {

constexpr std::string_view kWeight = ".weight";
const std::string kRuleKey = "sparsity.rule: ";

/// Calls it, and adds the lines of a ConfigError to the mistakes.
template <class Call>
void collect_mistakes(const Call& call, std::vector<std::string>& mistakes) {
  try {
    call();
  } catch (const ConfigError& error) {
    for (const std::string& line : error.lines()) mistakes.push_back(line);
  }
}

/// The recipe's rule, to check patterns against it, for a training of unknown length; null if its
/// own options are wrong, which is reported with the durations.
std::shared_ptr<const GrowRule> rule_of_any_length(const Recipe& recipe) {
  try {
    constexpr int64_t kSteps = int64_t{1} << 40;
    return Registry<GrowRule>::create(recipe.sparsity->rule, {{.samples_per_epoch = 1,
                                                               .samples_per_step = 1,
                                                               .tokens_per_sample = 1,
                                                               .total_steps = kSteps}});
  } catch (const ConfigError&) {
    return nullptr;
  }
}

/// A parameter that may be sparse, with its matrices as [outputs, inputs].
struct Place {
  Parameter parameter;
  bool is_transposed = false;
  MatrixSize size;
  std::string layer;  ///< the parameter's name without `.weight`
};

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts{""};
  for (const char c : name) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// Whether some neighbouring parts of the layer's name fit those of the entry.
bool names_layer(const std::string& entry, const std::string& layer) {
  const std::vector<std::string> wanted = parts_of(entry), parts = parts_of(layer);
  const auto fits = [](const std::string& part, const std::string& pattern) {
    return matches_glob(part, pattern);
  };
  return !std::ranges::search(parts, wanted, fits).empty();
}

/// Units over all ranks of the stack.
int64_t copies_of(const Parameter& parameter, const BuiltModel& model) {
  if (!parameter.is_stacked()) return 1;
  for (const auto& module : model.task->modules()) {
    const auto* bank = dynamic_cast<const UnitBank*>(module.get());
    if (bank == nullptr) continue;
    for (const torch::Tensor& own : bank->parameters(/*recurse=*/false)) {
      if (own.is_same(parameter.tensor)) return bank->placement().num_units();
    }
  }
  return stage_of(parameter, model)->info().num_units;
}

/// Modules inside routers and token gates, which stay dense.
std::set<const torch::nn::Module*> modules_of_routers(Task& task) {
  std::set<const torch::nn::Module*> inside;
  for (const auto& module : task.modules()) {
    const bool is_router = dynamic_cast<const Router*>(module.get()) != nullptr ||
                           dynamic_cast<const TokenGateImpl*>(module.get()) != nullptr;
    if (!is_router) continue;
    for (const auto& part : module->modules()) inside.insert(part.get());
  }
  return inside;
}

/// Parameters of modules that stay dense, as no gradient trains them.
std::set<const void*> untrained_parameters(const Task& task) {
  std::set<const void*> inside;
  for (const auto& root : task.untrained()) {
    for (const torch::Tensor& own : root->parameters()) inside.insert(own.unsafeGetTensorImpl());
  }
  return inside;
}

/// Weights of linear layers and patch embeddings, but for the task's head and routers.
std::set<const void*> linear_weights(Task& task) {
  const std::set<const torch::nn::Module*> routers = modules_of_routers(task);
  std::set<const void*> weights;
  for (const auto& item : task.named_modules()) {
    if (item.key() == "head" || routers.contains(item.value().get())) continue;
    if (const auto* linear = dynamic_cast<const LinearImpl*>(item.value().get())) {
      weights.insert(linear->weight.unsafeGetTensorImpl());
    } else if (const auto* stem = dynamic_cast<const PatchEmbedImpl*>(item.value().get())) {
      weights.insert(stem->weight.unsafeGetTensorImpl());
    }
  }
  return weights;
}

std::vector<Place> places_of(const BuiltModel& model) {
  const std::set<const void*> linear = linear_weights(*model.task);
  const std::set<const void*> untrained = untrained_parameters(*model.task);
  std::vector<Place> places;
  for (const Parameter& parameter : model.parameters) {
    if (untrained.contains(parameter.tensor.unsafeGetTensorImpl())) continue;
    const bool is_expert =
        parameter.is_stacked() && parameter.matrix_dims() == 2 && parameter.name.ends_with(kWeight);
    if (!is_expert && !linear.contains(parameter.tensor.unsafeGetTensorImpl())) continue;
    Place place{parameter, is_expert, {}, parameter.name};
    place.layer.resize(place.layer.size() - kWeight.size());
    const torch::Tensor& tensor = parameter.tensor;
    place.size = {tensor.size(-2), tensor.size(-1), copies_of(parameter, model)};
    if (is_expert) std::swap(place.size.rows, place.size.columns);
    places.push_back(std::move(place));
  }
  return places;
}

std::vector<std::string> default_layers(const BuiltModel& model) {
  for (const auto& module : model.task->modules()) {
    if (const auto* backbone = dynamic_cast<const Backbone*>(module.get())) {
      return backbone->sparse_layers();
    }
  }
  return {};
}

/// The last parts of the layers' names, each once: what entries may be.
std::string known_layers(const std::vector<Place>& places) {
  std::set<std::string> names;
  for (const Place& place : places) {
    std::vector<std::string> parts = parts_of(place.layer);
    const size_t first = parts.size() > 1 ? parts.size() - 2 : 0;
    names.insert(fmt::format(
        "{}", fmt::join(parts.begin() + static_cast<int64_t>(first), parts.end(), ".")));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Chosen density of each sparse layer; nothing where `distribution` decides.
using Densities = std::vector<std::optional<double>>;

class Planner {
 public:
  Planner(const SparsityOptions& options, const BuiltModel& model)
      : options_(options), parameters_(model.parameters), places_(places_of(model)) {
    choose(options.layers.empty() ? default_layers(model) : options.layers,
           !options.layers.empty());
  }

  std::vector<SparseLayer> plan() {
    const std::vector<double> densities = chosen_densities();
    std::vector<SparseLayer> layers;
    for (size_t i = 0; i < chosen_.size() && mistakes_.empty(); ++i) {
      if (densities[i] == 1.0) continue;
      add(chosen_[i], densities[i], layers);
    }
    if (!mistakes_.empty()) throw ConfigError(mistakes_);
    return layers;
  }

 private:
  void choose(const std::vector<std::string>& entries, bool are_given) {
    std::vector<bool> is_used(entries.size());
    for (const Place& place : places_) {
      bool is_chosen = false;
      for (size_t e = 0; e < entries.size(); ++e) {
        if (!names_layer(entries[e], place.layer)) continue;
        is_used[e] = is_chosen = true;
      }
      if (is_chosen) chosen_.push_back(place);
    }
    for (size_t e = 0; are_given && e < entries.size(); ++e) {
      if (!is_used[e]) refuse_entry(fmt::format("sparsity.layers[{}]", e), entries[e]);
    }
    if (chosen_.empty() && mistakes_.empty()) {
      mistakes_.push_back("sparsity: the model has no layers that can be sparse");
    }
  }
  void refuse_entry(const std::string& key, const std::string& entry) {
    mistakes_.push_back(
        fmt::format("{}: {}; there are {}", key, misfit(entry), known_layers(places_)));
  }
  std::string misfit(const std::string& entry) const {
    const auto is_named = [&entry](const auto& name) { return names_layer(entry, name); };
    if (std::ranges::any_of(places_, is_named, &Place::layer)) {
      return fmt::format("sparsity.layers leaves '{}' out", entry);
    }
    const auto dense = std::ranges::find_if(parameters_, is_named, &Parameter::name);
    if (dense == parameters_.end()) {
      return fmt::format("no layer that can be sparse is named '{}'", entry);
    }
    return fmt::format("'{}' is {}, which stays dense, as embeddings, norms, heads and routers do",
                       entry, dense->name);
  }

  std::vector<double> chosen_densities() {
    Densities own(chosen_.size());
    for (size_t d = 0; d < options_.densities.size(); ++d) {
      bool is_used = false;
      for (size_t i = 0; i < chosen_.size(); ++i) {
        if (!names_layer(options_.densities[d].match, chosen_[i].layer)) continue;
        own[i] = options_.densities[d].density;
        is_used = true;
      }
      if (!is_used) {
        refuse_entry(fmt::format("sparsity.densities[{}].match", d), options_.densities[d].match);
      }
    }
    return distribute(own);
  }
  std::vector<double> distribute(const Densities& own) {
    std::vector<MatrixSize> sizes;
    for (size_t i = 0; i < own.size(); ++i) {
      if (!own[i]) sizes.push_back(chosen_[i].size);
    }
    std::vector<double> shared(sizes.size(), options_.density);
    if (options_.distribution == DensityDistribution::kErk && !sizes.empty()) {
      shared = erk_densities(sizes, options_.density);
    }
    std::vector<double> densities;
    auto next = shared.begin();
    for (const std::optional<double>& density : own) {
      densities.push_back(density ? *density : *next++);
    }
    return densities;
  }

  void add(const Place& place, double density, std::vector<SparseLayer>& layers) {
    if (!place.parameter.tensor.requires_grad()) {
      mistakes_.push_back("sparsity.layers: " + place.layer +
                          " is frozen by optimizer.rules; name the layers without it");
      return;
    }
    const auto make = [&] {
      layers.push_back({place.parameter, place.is_transposed, density,
                        Registry<Pattern>::create(options_.pattern,
                                                  {place.size.rows, place.size.columns, density,
                                                   "sparsity.pattern: " + place.layer})});
    };
    collect_mistakes(make, mistakes_);
  }

  const SparsityOptions& options_;
  const std::vector<Parameter>& parameters_;
  std::vector<Place> places_, chosen_;
  std::vector<std::string> mistakes_;
};

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

bool set_branch(Task& task, const SparseLayer& layer) {
  const torch::Tensor& weight = layer.parameter.tensor;
  const Pattern& pattern = *layer.pattern;
  const auto branch = std::make_shared<LowRankBranch>(
      pattern.rows(), pattern.columns(), pattern.low_rank(), weight.detach().options());
  return std::ranges::any_of(task.modules(), [&](const auto& module) {
    auto* owner = dynamic_cast<HasLinearBranch*>(module.get());
    return owner != nullptr && owner->set_branch(weight, "low_rank", branch);
  });
}

void set_form(Task& task, const Parameter& parameter,
              const std::vector<std::shared_ptr<const WeightForm>>& forms) {
  const auto form = std::make_shared<WeightForms>(forms);
  for (const auto& module : task.modules()) {
    auto* owner = dynamic_cast<HasWeightForms*>(module.get());
    if (owner != nullptr && owner->set_form(parameter.tensor, form)) return;
  }
  throw ConfigError("sparsity: " + parameter.name +
                        " can have neither a permutation nor cells that are chosen softly; leave "
                        "it out of sparsity.layers",
                    ExitCode::kMismatch);
}

/// One a layer, in its first state; none if the recipe has no permutation.
std::vector<std::shared_ptr<Permutation>> permutations_of(const Recipe& recipe,
                                                          const std::vector<SparseLayer>& layers) {
  const auto method = Registry<PermutationMethod>::create(recipe.sparsity->permutation, {});
  const std::optional<PermutationAxis> axis = method->axis();
  std::vector<std::shared_ptr<Permutation>> permutations;
  if (!axis) return permutations;
  std::vector<std::string> mistakes;
  for (const SparseLayer& layer : layers) {
    const Permutation::Place place{layer.parameter, layer.is_transposed, *axis};
    const size_t before = mistakes.size();
    collect_mistakes(
        [&] { method->check("sparsity.permutation: " + layer.parameter.name, place.size()); },
        mistakes);
    if (mistakes.size() > before) continue;
    permutations.push_back(std::make_shared<Permutation>(place));
    method->begin(*permutations.back(), static_cast<uint64_t>(recipe.run.seed));
  }
  if (!mistakes.empty()) throw ConfigError(mistakes);
  if (permutations.empty()) {
    throw ConfigError(
        "sparsity.permutation: every layer has a density of 1, and only sparse layers "
        "are permuted; set permutation: {name: none}");
  }
  return permutations;
}

/// A momentum encoder follows the weights as they are: it would lack what layers compute from them.
void refuse_beside_momentum_encoder(const Recipe& recipe, const BuiltModel& model,
                                    const std::string& what) {
  if (model.task->untrained().empty()) return;
  throw ConfigError(
      fmt::format("sparsity.{}, but the momentum encoder of task {} follows only weights and masks",
                  what, recipe.task.name()));
}

}  // namespace

std::vector<SparseLayer> make_sparse_layers(const SparsityOptions& options,
                                            const BuiltModel& model) {
  return Planner(options, model).plan();
}

std::vector<SparseLayerInfo> describe_sparse(const Recipe& recipe, const BuiltModel& model) {
  const std::shared_ptr<const GrowRule> rule = rule_of_any_length(recipe);
  std::vector<SparseLayerInfo> infos;
  std::vector<std::string> mistakes;
  const std::vector<SparseLayer> layers = make_sparse_layers(*recipe.sparsity, model);
  collect_mistakes([&] { check_execution(recipe, layers); }, mistakes);
  for (const SparseLayer& layer : layers) {
    const Pattern& pattern = *layer.pattern;
    collect_mistakes(
        [&] {
          if (rule) rule->check(pattern, kRuleKey + layer.parameter.name);
        },
        mistakes);
    infos.push_back({layer.parameter.name, pattern.rows(), pattern.columns(),
                     copies_of(layer.parameter, model), layer.density, nonzero_weights(pattern),
                     pattern.low_rank(), span_of(pattern), 0, bytes_of(layer)});
  }
  for (const auto& permutation : model.permutations) {
    const auto info = std::ranges::find(infos, permutation->name(), &SparseLayerInfo::name);
    if (permutation->is_soft() && info != infos.end()) {
      info->soft_bytes = LearnPermutations::kCopiesOfSoft * permutation->soft_bytes();
    }
  }
  if (!mistakes.empty()) throw ConfigError(mistakes);
  return infos;
}

std::vector<std::string> sparsity_notes(const std::vector<SparseLayerInfo>& layers) {
  constexpr double kNear = 0.9;
  if (layers.empty()) return {"sparsity: every layer has a density of 1, so all stay dense"};
  const auto share = [](const SparseLayerInfo& layer) { return layer.reached() / layer.density; };
  const auto least = std::ranges::min_element(layers, {}, share);
  if (share(*least) >= kNear) return {};
  return {fmt::format(
      "sparsity.density: {} of {} reach less than 0.9 of it, since their cells are coarse: {} has "
      "{:.4g} of {:.4g}",
      std::ranges::count_if(layers, [&](const auto& layer) { return share(layer) < kNear; }),
      counted(std::ssize(layers), "sparse layer"), least->name, least->reached(), least->density)};
}

void add_low_rank_branches(const Recipe& recipe, BuiltModel& model) {
  std::vector<std::string> mistakes;
  for (const SparseLayer& layer : make_sparse_layers(*recipe.sparsity, model)) {
    if (layer.pattern->low_rank() == 0) continue;
    refuse_beside_momentum_encoder(
        recipe, model,
        "pattern: has a product of low rank beside the masks (low_rank: 0 has none)");
    if (layer.parameter.is_stacked()) {
      mistakes.push_back("sparsity.pattern: " + layer.parameter.name +
                         ": experts have no product of low rank; set low_rank: 0, or name the "
                         "layers without them");
    } else if (!set_branch(*model.task, layer)) {
      mistakes.push_back("sparsity.pattern: " + layer.parameter.name +
                         " can have no product of low rank; set low_rank: 0");
    }
  }
  if (!mistakes.empty()) throw ConfigError(mistakes);
  model.parameters = parameters_of(*model.task);
}

void form_layers(const Recipe& recipe, BuiltModel& model) {
  const auto layers = make_sparse_layers(*recipe.sparsity, model);
  const std::vector<std::shared_ptr<Permutation>> permutation_of_layer =
      permutations_of(recipe, layers);
  const std::shared_ptr<const GrowRule> rule = rule_of_any_length(recipe);
  const SoftChoice* choice = rule ? rule->soft_choice() : nullptr;
  if (choice != nullptr) {
    refuse_beside_momentum_encoder(recipe, model, "rule: chooses cells softly");
  }
  if (!permutation_of_layer.empty()) {
    refuse_beside_momentum_encoder(recipe, model,
                                   "permutation: permutes layers (name: none does not)");
  }
  for (size_t l = 0; l < layers.size(); ++l) {
    std::vector<std::shared_ptr<const WeightForm>> forms;
    if (choice != nullptr) {
      model.soft_cells.push_back(std::make_shared<SoftCells>(layers[l], choice->first_temperature));
      forms.push_back(model.soft_cells.back());
    }
    if (!permutation_of_layer.empty()) {
      model.permutations.push_back(permutation_of_layer[l]);
      forms.push_back(permutation_of_layer[l]);
    }
    if (!forms.empty()) set_form(*model.task, layers[l].parameter, forms);
  }
}

std::unique_ptr<LearnPermutations> make_learn_permutations(const Recipe& recipe,
                                                           const BuiltModel& model,
                                                           const StepScale& scale) {
  if (!recipe.sparsity) return nullptr;
  const auto method = Registry<PermutationMethod>::create(recipe.sparsity->permutation, {});
  if (method->learning() == nullptr) return nullptr;
  return std::make_unique<LearnPermutations>(model.permutations, *method->learning(), scale);
}

std::unique_ptr<PruneGrow> make_prune_grow(const Recipe& recipe, const BuiltModel& model,
                                           const StepScale& scale) {
  if (!recipe.sparsity) return nullptr;
  auto layers = make_sparse_layers(*recipe.sparsity, model);
  const auto rule = Registry<GrowRule>::create(recipe.sparsity->rule, {scale});
  for (const SparseLayer& layer : layers) {
    rule->check(*layer.pattern, kRuleKey + layer.parameter.name);
  }
  std::vector<LayerChain> chains = chain_layers(layers, model.permutations);
  auto prune_grow = std::make_unique<PruneGrow>(
      std::move(layers), rule, static_cast<uint64_t>(recipe.run.seed), recipe.sparsity->rescale);
  prune_grow->remove_chains_of(std::move(chains));
  run_sparse_layers(recipe, model, {}, *prune_grow);
  return prune_grow;
}

std::unique_ptr<ChooseCells> make_choose_cells(const Recipe& recipe, const BuiltModel& model,
                                               const StepScale& scale, PruneGrow* prune_grow) {
  if (model.soft_cells.empty() || prune_grow == nullptr) return nullptr;
  const auto rule = Registry<GrowRule>::create(recipe.sparsity->rule, {scale});
  return std::make_unique<ChooseCells>(model.soft_cells, *rule->soft_choice(), scale.total_steps,
                                       *prune_grow);
}

}  // namespace shoal
