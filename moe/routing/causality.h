#pragma once

#include <string_view>

#include "moe/routing/capacity.h"
#include "moe/routing/router.h"

namespace shoal {

/// Reports a router (under `router.name`) and a capacity (under `capacity.order`) that let a token
/// depend on later tokens of its sample, for the MoE layers of causal models. `name`: the router's.
void check_causality(const Router& router, std::string_view name, const Capacity& capacity,
                     Problems& problems);

}  // namespace shoal
