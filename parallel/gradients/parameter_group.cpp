#include "parallel/gradients/parameter_group.h"

#include <utility>

namespace shoal {

std::vector<ParameterGroup> group_parameters(const std::vector<Parameter>& parameters,
                                             RankGrid& grid) {
  ParameterGroup whole{{}, &grid.tensor_world(), {}};
  ParameterGroup stacked{{}, grid.replica.get(), {}};
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].tensor.requires_grad()) continue;
    ParameterGroup& group = parameters[i].is_stacked() ? stacked : whole;
    group.parameters.push_back(parameters[i]);
    group.places.push_back(static_cast<int64_t>(i));
  }
  std::vector<ParameterGroup> groups;
  for (ParameterGroup* group : {&whole, &stacked}) {
    if (!group->parameters.empty()) groups.push_back(std::move(*group));
  }
  return groups;
}

}  // namespace shoal
