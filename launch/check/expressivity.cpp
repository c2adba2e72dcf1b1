#include "launch/check/expressivity.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace shoal {

std::vector<Expressivity> expressivity_of(const std::vector<SparseLayerInfo>& layers) {
  std::vector<RegionLayer> masked;
  int64_t inputs = 0;
  for (const SparseLayerInfo& layer : layers) {
    if (layer.name.find("mlp.") == std::string::npos || layer.copies > 1) continue;
    if (masked.empty()) inputs = layer.columns;
    masked.push_back({layer.rows, layer.span});
  }
  if (masked.empty()) {
    throw ConfigError(
        "sparsity.layers: no MLP of this model is sparse, and --expressivity counts "
        "linear regions of MLPs");
  }
  std::vector<RegionLayer> free = masked;
  for (RegionLayer& layer : free) layer.span.reset();
  return {{"dense or free masks", bound_regions(inputs, free, RegionMixing::kNone)},
          {"these masks", bound_regions(inputs, masked, RegionMixing::kNone)},
          {"these masks, permuted", bound_regions(inputs, masked, RegionMixing::kPermuted)}};
}

void print_expressivity(const std::vector<Expressivity>& settings, std::ostream& out) {
  out << fmt::format("{:<22}  {:>26}  {:>20}  {}\n", "expressivity", "directions, first layers",
                     "log10 linear regions", "all directions from layer");
  for (const Expressivity& one : settings) {
    std::string directions;
    const size_t shown = std::min<size_t>(4, one.bound.directions.size());
    for (size_t l = 0; l < shown; ++l) {
      directions += fmt::format("{}{}", l > 0 ? " " : "", one.bound.directions[l]);
    }
    out << fmt::format(
        "{:<22}  {:>26}  {:>20.1f}  {}\n", one.setting, directions, one.bound.log10_regions,
        one.bound.layers_to_catch_up ? std::to_string(*one.bound.layers_to_catch_up) : "none");
  }
}

}  // namespace shoal
