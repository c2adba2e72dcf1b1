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

EqualityCase make_case(const RouterRow& router, const CapacityRow& capacity, size_t number) {
  EqualityCase test{router.name + "_" + capacity.name, {}, {}};
  const std::string shared =
      number % 2 == 1 ? fmt::format(", shared: {{count: 2, hidden: 3, gated: {}}}", number % 4 == 1)
                      : "";
  const std::string kind = number % 3 == 2 ? "kind: gated, " : "";
  for (const char* stage : {"token_moe", "channel_moe"}) {
    test.overrides.push_back(
        fmt::format("model.sparse.{}={{router: {{{}}}, losses: {}, capacity: {{{}}}, experts: "
                    "{{{}count: 6, hidden: 5}}{}}}",
                    stage, router.keys, losses_for(router), capacity.keys, kind, shared));
  }
  // Eighteen losses at once make steep ground, on which rounding grows from step to step.
  test.overrides.emplace_back("optimizer.lr=0.005");
  if (number % 4 >= 2) test.overrides.emplace_back("parallel.placement=by_cost");
  return test;
}

}  // namespace

std::vector<EqualityCase> routing_matrix() {
  std::vector<EqualityCase> cases;
  for (const RouterRow& router : router_rows()) {
    for (const CapacityRow& capacity : capacity_rows()) {
      if (!router.takes_capacity && capacity.name != "Dropless") continue;
      cases.push_back(make_case(router, capacity, cases.size()));
    }
  }
  return cases;
}

std::vector<EqualityCase> routing_selection() {
  std::vector<EqualityCase> cases;
  const std::vector<CapacityRow> capacities = capacity_rows();
  for (const RouterRow& router : router_rows()) {
    const size_t turn = router.takes_capacity ? cases.size() % capacities.size() : 0;
    cases.push_back(make_case(router, capacities[turn], cases.size()));
  }
  return cases;
}

}  // namespace shoal::testing
