#include "moe/routing/router.h"

#include <fmt/format.h>

#include "moe/routing/capacity.h"
#include "runtime/recipe/config.h"

namespace shoal {

void Router::check(const std::string& path, Problems& problems) const {
  if (k_ <= num_units_) return;
  problems.add(path + ".k", fmt::format("{} units a token, but there are only {}", k_, num_units_));
}

void check_causality(const Router& router, std::string_view name, const Capacity& capacity,
                     Problems& problems) {
  if (!router.is_causal()) {
    problems.add("router.name",
                 fmt::format("a causal model cannot use {}, which routes a token by later tokens "
                             "too; use top_k, noisy_top_k, sigmoid, sqrt_softplus, hash, forced, "
                             "or importance_score with drop and eval_drop 0",
                             name));
  }
  if (!is_causal(capacity, router.units_per_token())) {
    problems.add("capacity.order",
                 fmt::format("a causal model cannot use {} under a cap with {} choices per token, "
                             "which drops rows by what later tokens choose; use position, "
                             "slot_major with router.k 1, or capacity.mode dropless",
                             enum_name(capacity.order), router.units_per_token()));
  }
}

}  // namespace shoal
