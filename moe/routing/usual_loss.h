#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "runtime/options/config.h"

namespace shoal {

/// The tokens among which a balance loss seeks balance. No scope depends on the number of ranks.
enum class ScopeKind {
  kSequence,  ///< one sample
  kGroup,     ///< one routing group
  kGlobal,    ///< all ranks' samples of one micro-step; the only one that depends on `accumulate`
};

template <>
struct EnumNames<ScopeKind> {
  static constexpr std::array names{std::pair{ScopeKind::kSequence, "sequence"},
                                    std::pair{ScopeKind::kGroup, "group"},
                                    std::pair{ScopeKind::kGlobal, "global"}};
};

/// A usual balance loss of a router, selected by `losses: auto`.
struct UsualLoss {
  std::string_view name;  ///< registered name of the loss
  double weight = 0.0;
  ScopeKind scope = ScopeKind::kGroup;
};

}  // namespace shoal
