#include "models/product_counts.h"

namespace shoal {

NexusCounts::NexusCounts(const FeedForwardOptions& options, int64_t depth) {
  if (!options.nexus) return;
  slots_of_unit = static_cast<double>(options.nexus->slots);
  units = static_cast<double>(options.nexus->experts.count + options.nexus->memory.count);
  for (int64_t block = 0; block < depth; ++block) layers += options.is_sparse(block, depth) ? 1 : 0;
}

double NexusCounts::rows_of(std::string_view parameter, double tokens) const {
  const bool is_of_unit = parameter.find(".nexus.experts.") != std::string_view::npos ||
                          parameter.find(".nexus.memory.") != std::string_view::npos;
  return is_of_unit ? slots_of_unit : tokens;
}

double NexusCounts::between_activations(double tokens, double width) const {
  return layers * 2 * tokens * slots_of_unit * units * width;
}

}  // namespace shoal
