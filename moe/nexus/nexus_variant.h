#pragma once

#include <array>
#include <utility>

#include "runtime/recipe/config.h"

namespace shoal {

/// How close to the Nexus paper's pseudo-code parts of a Nexus layer stay.
enum class NexusVariant {
  kNormalised,  ///< logits and queries are normalised, first values have the scale of their use
  kPaper,       ///< to the letter, with standard normal first values: does not train
};

template <>
struct EnumNames<NexusVariant> {
  static constexpr std::array names{std::pair{NexusVariant::kNormalised, "normalised"},
                                    std::pair{NexusVariant::kPaper, "paper"}};
};

}  // namespace shoal
