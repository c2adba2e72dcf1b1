#include "launch/train/sparse_layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "models/blocks/patch_embed.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/module/linear.h"
#include "sparse/layer_density.h"

namespace shoal {
namespace {

constexpr std::string_view kWeight = ".weight";

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
  for (const auto& stage : model.stages) {
    const std::string path = stage->path() + ".";
    if (parameter.name.starts_with(path) || parameter.name.starts_with("backbone." + path)) {
      return stage->info().num_units;
    }
  }
  return parameter.tensor.size(0);
}

/// Weights of linear layers and patch embeddings, but for the task's head.
std::set<const void*> linear_weights(Task& task) {
  std::set<const void*> weights;
  for (const auto& item : task.named_modules()) {
    if (item.key() == "head") continue;
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
  std::vector<Place> places;
  for (const Parameter& parameter : model.parameters) {
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

/// Of the sparse layers the chosen density, nothing where distribution decides.
using Densities = std::vector<std::optional<double>>;

class Planner {
 public:
  Planner(const SparsityOptions& options, const BuiltModel& model)
      : options_(options), places_(places_of(model)) {
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
    mistakes_.push_back(fmt::format("{}: no layer that can be sparse is named '{}'; there are {}",
                                    key, entry, known_layers(places_)));
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
                          " is frozen by optimizer.rules; leave it out");
      return;
    }
    try {
      layers.push_back({place.parameter, place.is_transposed, density,
                        Registry<Pattern>::create(options_.pattern,
                                                  {place.size.rows, place.size.columns, density,
                                                   "sparsity.pattern: " + place.layer})});
    } catch (const ConfigError& error) {
      for (const std::string& line : error.lines()) mistakes_.push_back(line);
    }
  }

  const SparsityOptions& options_;
  std::vector<Place> places_, chosen_;
  std::vector<std::string> mistakes_;
};

}  // namespace

std::vector<SparseLayer> make_sparse_layers(const SparsityOptions& options,
                                            const BuiltModel& model) {
  return Planner(options, model).plan();
}

std::vector<SparseLayerInfo> describe_sparse(const Recipe& recipe, const BuiltModel& model) {
  std::vector<SparseLayerInfo> infos;
  for (const SparseLayer& layer : make_sparse_layers(*recipe.sparsity, model)) {
    const Pattern& pattern = *layer.pattern;
    infos.push_back({layer.parameter.name, pattern.rows(), pattern.columns(),
                     copies_of(layer.parameter, model), layer.density, pattern.num_weights()});
  }
  return infos;
}

std::unique_ptr<PruneGrow> make_prune_grow(const Recipe& recipe, const BuiltModel& model,
                                           const StepScale& scale) {
  if (!recipe.sparsity) return nullptr;
  return std::make_unique<PruneGrow>(make_sparse_layers(*recipe.sparsity, model),
                                     Registry<GrowRule>::create(recipe.sparsity->rule, {scale}),
                                     static_cast<uint64_t>(recipe.run.seed),
                                     recipe.sparsity->rescale);
}

}  // namespace shoal
