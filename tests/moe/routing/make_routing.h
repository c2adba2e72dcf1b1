#pragma once

#include <torch/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "moe/kernels/row_top_k.h"
#include "moe/routing/capacity.h"
#include "moe/routing/router.h"
#include "moe/routing/routing.h"
#include "runtime/options/config.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/registry.h"

namespace shoal::testing {

/// A router as a recipe names it: `{name: sigmoid, k: 2}`.
inline Choice<Router> router_choice(const std::string& recipe) {
  struct Section {
    Choice<Router> router;
    static constexpr auto fields() {
      return std::tuple{field("router", &Section::router, "a router")};
    }
  };
  return config::load_options_text<Section>("router: " + recipe, "recipe").options.router;
}

/// The Routing of a top-k softmax router on these logits, without noise.
inline Routing make_routing(const torch::Tensor& logits_TU, int64_t k,
                            const std::vector<int64_t>& group_offsets = {}) {
  Routing routing;
  routing.num_units = logits_TU.size(1);
  routing.logits_TU = routing.noisy_TU = logits_TU;
  routing.prob_TU = logits_TU.softmax(1);
  routing.choice_TK = routing.unit_TK = top_k(logits_TU.detach(), k);
  routing.weight_TK = routing.prob_TU.gather(1, routing.choice_TK);
  routing.score_TK = routing.weight_TK.detach();
  routing.group_offsets =
      group_offsets.empty() ? std::vector<int64_t>{0, logits_TU.size(0)} : group_offsets;
  return routing;
}

inline std::vector<int64_t> values(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.to(torch::kInt64).contiguous();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

/// (token, unit, place in the unit) of each row that survived, by token and unit.
inline std::set<std::tuple<int64_t, int64_t, int64_t>> places(const TokenAssignments& assignments) {
  std::set<std::tuple<int64_t, int64_t, int64_t>> result;
  const std::vector<int64_t> token = values(assignments.token_A), rows = values(assignments.rows_U);
  size_t a = 0;
  for (size_t unit = 0; unit < rows.size(); ++unit) {
    for (int64_t place = 0; place < rows[unit]; ++place, ++a) {
      if (token[a] >= 0) result.insert({token[a], static_cast<int64_t>(unit), place});
    }
  }
  return result;
}

}  // namespace shoal::testing
