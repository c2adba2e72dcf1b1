#include "tests/support/routing_matrix.h"

#include <fmt/format.h>

namespace shoal::testing {
namespace {

struct RouterRow {
  std::string name;
  std::string keys;  ///< of the router's section
  bool takes_losses;
  bool has_noise;  ///< which the load loss needs
  bool takes_capacity;
};

std::vector<RouterRow> router_rows() {
  return {
      {"TopK", "name: top_k, k: 2, noise: none", true, false, true},
      {"TopKTop1Noise", "name: top_k, k: 1, noise: gaussian", true, true, true},
      {"TopKPost",
       "name: top_k, k: 2, noise: gaussian, weights: {normalise: topk_softmax, scale: 1.5}", true,
       true, true},
      {"TopKRenormalised",
       "name: top_k, k: 3, noise: gaussian, weights: {normalise: sum, renorm_after_drop: true}",
       true, true, true},
      {"TopKGroups", "name: top_k, k: 2, noise: gaussian, groups: {count: 3, keep: 2}", true, true,
       true},
      {"NoisyTopK", "name: noisy_top_k, k: 2", true, true, true},
      {"Sigmoid", "name: sigmoid, k: 2", true, false, true},
      {"SigmoidGroupsBias",
       "name: sigmoid, k: 2, groups: {count: 2, keep: 1, score: max}, bias: {rate: 0.05}", true,
       false, true},
      {"SqrtSoftplusCentredBias", "name: sqrt_softplus, k: 2, bias: {rate: 0.05, centred: true}",
       true, false, true},
      {"ImportanceScore", "name: importance_score, k: 2, drop: 0.3", true, true, true},
      {"Sinkhorn", "name: sinkhorn, k: 2", false, false, true},
      {"Hash", "name: hash, k: 2", false, false, true},
      {"ForcedBalanced", "name: forced, k: 2", false, false, true},
      {"ForcedZipf", "name: forced, k: 2, load: zipf", false, false, true},
      {"ExpertChoice", "name: expert_choice, k: 2, factor: 1.3", false, false, false},
  };
}

struct CapacityRow {
  std::string name;
  std::string keys;
};

std::vector<CapacityRow> capacity_rows() {
  std::vector<CapacityRow> rows{{"Dropless", "mode: dropless"}};
  for (const char* mode : {"capped", "padded"}) {
    for (const char* order : {"slot_major", "batch_priority", "probability", "position"}) {
      rows.push_back({fmt::format("{}_{}", mode, order),
                      fmt::format("mode: {}, factor: 0.8, min: 1, order: {}", mode, order)});
    }
  }
  return rows;
}

std::string losses_for(const RouterRow& router) {
  if (!router.takes_losses) return "[]";
  std::vector<std::string> losses;
  for (const char* scope : {"sequence", "group", "global"}) {
    const auto add = [&](const std::string& keys) {
      losses.push_back(fmt::format("{{{}, weight: 0.05, scope: {}}}", keys, scope));
    };
    add("name: importance");
    add("name: switch");
    add("name: switch, counts: first_choice");
    add("name: z");
    add("name: kl_uniform");
    if (router.has_noise) add("name: load");
  }
  return fmt::format("[{}]", fmt::join(losses, ", "));
}

/// Beside router and capacity: which experts, shared ones, placement, and shares of the samples.
/// They vary with both indices, so that each meets each of the others (RoutingMatrix tests hold
/// that).
struct Sides {
  bool is_gated, by_cost, is_accumulated;
  int64_t shared;  ///< 0 none, 1 plain, 2 gated
};

Sides sides_of(size_t router, size_t capacity) {
  return {(router + capacity) % 2 == 1, (router / 2 + capacity / 2) % 2 == 1,
          (router / 4 + capacity) % 4 == 3, static_cast<int64_t>((router + 2 * capacity) % 3)};
}

EqualityCase make_equality_case(size_t router_index, size_t capacity_index) {
  const RouterRow router = router_rows()[router_index];
  const CapacityRow capacity = capacity_rows()[capacity_index];
  const Sides sides = sides_of(router_index, capacity_index);
  const char* shared_names[] = {"", "_SharedPlain", "_SharedGated"};
  EqualityCase test{
      fmt::format("{}_{}{}{}{}{}", router.name, capacity.name, sides.is_gated ? "_Gated" : "_Plain",
                  shared_names[sides.shared], sides.by_cost ? "_ByCost" : "_Contiguous",
                  sides.is_accumulated ? "_Accumulated" : ""),
      {},
      {},
      3};
  const std::string shared =
      sides.shared == 0
          ? ""
          : fmt::format(", shared: {{count: 2, hidden: 3, gated: {}}}", sides.shared == 2);
  for (const char* stage : {"token_moe", "channel_moe"}) {
    test.overrides.push_back(
        fmt::format("model.sparse.{}={{router: {{{}}}, losses: {}, capacity: {{{}}}, experts: "
                    "{{kind: {}, count: 6, hidden: 5}}{}}}",
                    stage, router.keys, losses_for(router), capacity.keys,
                    sides.is_gated ? "gated" : "plain", shared));
  }
  // Eighteen losses at once make steep ground, on which rounding grows from step to step.
  test.overrides.emplace_back("optimizer.lr=0.005");
  if (sides.by_cost) test.overrides.emplace_back("parallel.placement=by_cost");
  // Of four ranks one has no samples then.
  if (sides.is_accumulated) test.overrides = accumulated(test.overrides);
  return test;
}

}  // namespace

std::vector<EqualityCase> routing_matrix() {
  std::vector<EqualityCase> cases;
  for (size_t router = 0; router < router_rows().size(); ++router) {
    for (size_t capacity = 0; capacity < capacity_rows().size(); ++capacity) {
      if (router_rows()[router].takes_capacity || capacity == 0) {
        cases.push_back(make_equality_case(router, capacity));
      }
    }
  }
  return cases;
}

std::vector<EqualityCase> routing_selection() {
  std::vector<EqualityCase> cases;
  for (size_t router = 0; router < router_rows().size(); ++router) {
    cases.push_back(make_equality_case(router, 0));
    if (!router_rows()[router].takes_capacity) continue;
    // Rows 1 to 4 are the capped orders, 5 to 8 the padded ones.
    for (size_t order = 0; order < 4; ++order) {
      cases.push_back(make_equality_case(router, 1 + order + 4 * ((router + order) % 2)));
    }
  }
  return cases;
}

}  // namespace shoal::testing
