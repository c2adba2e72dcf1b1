#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "runtime/options/config.h"

namespace shoal {

/// Over which tokens a balance loss looks for balance. No scope depends on the number of ranks.
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

/// A balance loss that is usual for a router: what `losses: auto` stands for.
struct UsualLoss {
  std::string_view name;  ///< what the loss is registered as
  double weight = 0.0;
  ScopeKind scope = ScopeKind::kGroup;
};

}  // namespace shoal
