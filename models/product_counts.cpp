#include "models/product_counts.h"

#include <fmt/format.h>

#include <limits>

namespace shoal {

int64_t number_behind(std::string_view begin, std::string_view parameter) {
  return std::stoll(std::string(parameter.substr(begin.size())));
}

int64_t ProductCounts::place_of(std::string_view parameter) const {
  constexpr std::string_view kBlocks = "blocks.";
  if (parameter.starts_with("stem")) return 0;  // and its norm
  if (parameter.find('.') == parameter.npos) return 1;
  if (parameter.starts_with(kBlocks)) return place_of_block(number_behind(kBlocks, parameter));
  return std::numeric_limits<int64_t>::max();
}

NexusCounts::NexusCounts(const FeedForwardOptions& options, int64_t depth)
    : has_layer_(static_cast<size_t>(depth)) {
  if (!options.nexus) return;
  slots_per_unit_ = static_cast<double>(options.nexus->slots);
  num_units_ = static_cast<double>(options.nexus->experts.count + options.nexus->memory.count);
  for (int64_t block = 0; block < depth; ++block) {
    has_layer_[static_cast<size_t>(block)] = options.is_sparse(block, depth);
  }
}

double NexusCounts::rows_of(std::string_view parameter, double tokens) const {
  const bool is_of_unit = parameter.find(".nexus.experts.") != std::string_view::npos ||
                          parameter.find(".nexus.memory.") != std::string_view::npos;
  return is_of_unit ? slots_per_unit_ : tokens;
}

std::optional<ActivationProducts> NexusCounts::mixing(int64_t block, double tokens,
                                                      double width) const {
  if (!has_layer_[static_cast<size_t>(block)]) return std::nullopt;
  return ActivationProducts{fmt::format("blocks.{}.nexus.", block),
                            2 * tokens * slots_per_unit_ * num_units_ * width};
}

}  // namespace shoal
