#include "parallel/parameter_group.h"

#include <utility>

namespace shoal {

std::vector<ParameterGroup> group_parameters(const std::vector<Parameter>& parameters,
                                             RankGrid& grid) {
  ParameterGroup whole{{}, grid.world.get()};
  ParameterGroup stacked{{}, grid.replica.get()};
  for (const Parameter& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    (parameter.is_stacked() ? stacked : whole).parameters.push_back(parameter);
  }
  std::vector<ParameterGroup> groups;
  for (ParameterGroup* group : {&whole, &stacked}) {
    if (!group->parameters.empty()) groups.push_back(std::move(*group));
  }
  return groups;
}

}  // namespace shoal
