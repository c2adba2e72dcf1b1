#include "sparse/sparse_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/module/sparse_place.h"
#include "sparse/layer_density.h"

namespace shoal {
namespace {

constexpr std::string_view kWeight = ".weight";

/// A parameter that may be sparse, with its matrices as [outputs, inputs].
struct Place {
  std::string parameter;
  bool is_transposed = false;
  MatrixSize size;
  std::string layer;  ///< the parameter's name without `.weight`
};

/// A dot at the end leaves an empty part.
std::vector<std::string> parts_of(const std::string& name) { return split(name + ".", '.'); }

/// Whether some neighbouring parts of the layer's name fit those of the entry.
bool names_layer(const std::string& entry, const std::string& layer) {
  const std::vector<std::string> wanted = parts_of(entry), parts = parts_of(layer);
  const auto fits = [](const std::string& part, const std::string& pattern) {
    return matches_glob(part, pattern);
  };
  return !std::ranges::search(parts, wanted, fits).empty();
}

/// All modules that stay dense, and those inside them.
std::set<const torch::nn::Module*> dense_modules(const SparseScope& scope) {
  std::vector<std::shared_ptr<torch::nn::Module>> roots = scope.dense;
  for (const auto& module : scope.root.modules()) {
    if (dynamic_cast<const StaysDense*>(module.get()) != nullptr) roots.push_back(module);
  }
  std::set<const torch::nn::Module*> dense;
  for (const auto& root : roots) {
    for (const auto& module : root->modules()) dense.insert(module.get());
  }
  return dense;
}

std::vector<Place> places_of(const SparseScope& scope) {
  const std::set<const torch::nn::Module*> dense = dense_modules(scope);
  std::map<const void*, SparsePlace> offered;
  for (const auto& module : scope.root.modules()) {
    const auto* owner = dynamic_cast<const HasSparsePlaces*>(module.get());
    if (owner == nullptr || dense.contains(module.get())) continue;
    for (SparsePlace& place : owner->sparse_places()) {
      offered.emplace(place.weight.unsafeGetTensorImpl(), std::move(place));
    }
  }
  std::vector<Place> places;
  for (const Parameter& parameter : scope.parameters) {
    const auto found = offered.find(parameter.tensor.unsafeGetTensorImpl());
    if (found == offered.end()) continue;
    const auto& [weight, is_transposed, copies] = found->second;
    MatrixSize size{weight.size(-2), weight.size(-1), copies};
    if (is_transposed) std::swap(size.rows, size.columns);
    const std::string& name = parameter.name;
    places.push_back({name, is_transposed, size, name.substr(0, name.size() - kWeight.size())});
  }
  return places;
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

/// The density chosen for each sparse layer; nothing where sparsity.distribution decides.
using Densities = std::vector<std::optional<double>>;

class Planner {
 public:
  Planner(const SparsityOptions& options, const SparseScope& scope)
      : options_(options), parameters_(scope.parameters), places_(places_of(scope)) {
    const bool are_given = !options.layers.empty();
    choose(are_given ? options.layers : scope.usual_layers, are_given);
  }

  SparsePlan plan() {
    const std::vector<double> densities = chosen_densities();
    SparsePlan plan;
    for (size_t i = 0; i < chosen_.size() && mistakes_.empty(); ++i) {
      if (densities[i] == 1.0) continue;
      add(chosen_[i], densities[i], plan);
    }
    if (!mistakes_.empty()) throw ConfigError(mistakes_);
    return plan;
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

  void add(const Place& place, double density, SparsePlan& plan) {
    const auto make = [&] {
      plan.layers.push_back({place.parameter, place.is_transposed, place.size.copies, density,
                             Registry<Pattern>::create(
                                 options_.pattern, {place.size.rows, place.size.columns, density,
                                                    "sparsity.pattern: " + place.layer})});
    };
    collect_mistakes(make, mistakes_);
  }

  const SparsityOptions& options_;
  const std::vector<Parameter>& parameters_;
  std::vector<Place> places_, chosen_;
  std::vector<std::string> mistakes_;
};

}  // namespace

std::vector<SparseLayer> SparsePlan::of(const std::vector<Parameter>& parameters) const {
  std::vector<SparseLayer> found;
  std::vector<std::string> mistakes;
  for (const Layer& layer : layers) {
    const auto own = std::ranges::find(parameters, layer.name, &Parameter::name);
    TORCH_CHECK(own != parameters.end(), "the model has no parameter ", layer.name);
    if (!own->tensor.requires_grad()) {
      mistakes.push_back(
          "sparsity.layers: " + layer.name.substr(0, layer.name.size() - kWeight.size()) +
          " is frozen by optimizer.rules; name the layers without it");
    }
    found.push_back({*own, layer.is_transposed, layer.density, layer.pattern});
  }
  if (!mistakes.empty()) throw ConfigError(mistakes);
  return found;
}

SparsePlan plan_sparsity(const SparsityOptions& options, const SparseScope& scope) {
  return Planner(options, scope).plan();
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

}  // namespace shoal
