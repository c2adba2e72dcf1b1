#include "moe/routing/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "moe/routing/capacity.h"
#include "runtime/base/text.h"
#include "runtime/options/config.h"

namespace shoal {

torch::Tensor Router::first_units(const Routing& routing) const {
  if (!chooses_per_unit()) return routing.choice_TK.select(1, 0);
  const torch::Tensor best_T1 =
      routing.score_TK.masked_fill(routing.choice_TK < 0, -1).argmax(1, /*keepdim=*/true);
  return routing.choice_TK.gather(1, best_T1).squeeze(1);
}

void Router::check(const std::string& path, Problems& problems) const {
  if (k_ <= num_units_) return;
  problems.add(path + ".k",
               fmt::format("{} units per token, but there are only {}", k_, num_units_));
}

void Router::check_scores_only(const std::string& path, Problems& problems) const {
  if (k_ != 1) {
    problems.add(path + ".k", fmt::format("{}, but every token is computed by all units, whose "
                                          "outputs its scores weight; use 1",
                                          k_));
  }
}

namespace {

/// Registered routers that are causal as they are, then those that some values make so.
std::string causal_routers() {
  std::vector<std::string> causal, hinted;
  for (const config::MemberInfo* member : members_of<Router>().members()) {
    const auto router = Registry<Router>::create(
        Choice<Router>(member->name), {.width = 8, .num_units = 8, .tensor_options = torch::kMeta});
    if (router->is_causal()) {
      causal.push_back(member->name);
    } else if (!router->causal_hint().empty()) {
      hinted.push_back(member->name + " with " + router->causal_hint());
    }
  }
  std::ranges::move(hinted, std::back_inserter(causal));
  return join_words(causal);
}

}  // namespace

void check_causality(const Router& router, std::string_view name, const Capacity& capacity,
                     Problems& problems) {
  if (!router.is_causal()) {
    problems.add("router.name",
                 fmt::format("a causal model cannot use {}, which routes a token by later tokens "
                             "too; use one of {}",
                             name, causal_routers()));
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
