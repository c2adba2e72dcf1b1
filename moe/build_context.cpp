#include "moe/build_context.h"

#include <algorithm>

namespace shoal {

PlaceUnits placement_rule(const BuildContext& context, const std::string& path) {
  const int64_t num_ranks = context.grid == nullptr ? 1 : context.grid->expert->size();
  const auto load = context.unit_load.find(path);
  if (context.placement == PlacementRule::kByCost) {
    return [num_ranks](const std::vector<double>& cost_U) {
      return UnitPlacement::by_cost(cost_U, num_ranks);
    };
  }
  std::vector<double> load_U;
  if (context.placement == PlacementRule::kByLoad && load != context.unit_load.end()) {
    for (const double choices : load->second) load_U.push_back(std::max(choices, 1.0));
  }
  return [num_ranks, load_U](const std::vector<double>& cost_U) {
    // Loads of another number of units are another model's; resuming refuses that later, once the
    // model is built, and lists the differences.
    if (load_U.size() == cost_U.size()) return UnitPlacement::by_cost(load_U, num_ranks);
    return UnitPlacement::contiguous(static_cast<int64_t>(cost_U.size()), num_ranks);
  };
}

}  // namespace shoal
