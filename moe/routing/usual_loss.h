#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "runtime/options/config.h"

namespace shoal {

/// The tokens over which a balance loss (auxiliary loss that evens out the experts' loads) is
/// computed, before its values are averaged. No scope depends on the number of ranks.
enum class ScopeKind {
  kSequence,  ///< one sample
  kGroup,     ///< one routing group: train.group samples (recipe key), whole on one rank
  kGlobal,    ///< all ranks' samples of one micro-step; depends on train.accumulate
};

template <>
struct EnumNames<ScopeKind> {
  static constexpr std::array names{std::pair{ScopeKind::kSequence, "sequence"},
                                    std::pair{ScopeKind::kGroup, "group"},
                                    std::pair{ScopeKind::kGlobal, "global"}};
};

/// A balance loss that goes with a router by default (recipe: `losses: auto`).
struct UsualLoss {
  std::string_view name;  ///< registered name of the loss
  double weight = 0.0;    ///< factor in the training loss
  ScopeKind scope = ScopeKind::kGroup;
};

}  // namespace shoal
