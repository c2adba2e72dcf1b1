#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "moe/moe_layer.h"
#include "runtime/options/config_reader.h"
#include "tests/support/moe_layer_fixture.h"

namespace shoal {
namespace {

using testing::difference;
using testing::LayerCase;
using testing::LayerResult;
using testing::run_layer_on;

struct PaddedRouter {
  std::string name, keys = "";
  bool takes_losses = true;
  bool has_noise = false;      ///< which the load loss needs
  bool takes_capacity = true;  ///< besides dropless
  bool is_keyed = false;       ///< draws by a token's place in the run
  bool is_by_place = false;    ///< chooses by a token's place in its sample
};

const PaddedRouter kPaddedRouters[] = {
    {.name = "top_k", .keys = ", k: 2, noise: none"},
    {.name = "top_k", .keys = ", k: 1, noise: gaussian", .has_noise = true, .is_keyed = true},
    {.name = "top_k",
     .keys = ", k: 3, noise: none, weights: {normalise: sum, renorm_after_drop: true}"},
    {.name = "top_k", .keys = ", k: 2, noise: none, groups: {count: 3, keep: 2}"},
    {.name = "noisy_top_k", .keys = ", k: 2", .has_noise = true, .is_keyed = true},
    {.name = "mlp", .keys = ", k: 2"},
    {.name = "sigmoid", .keys = ", k: 2, bias: {rate: 0.05}"},
    {.name = "sqrt_softplus", .keys = ", k: 2"},
    {.name = "importance_score", .keys = ", k: 2, noise: none, drop: 0.3, eval_drop: 0.2"},
    {.name = "sinkhorn", .keys = ", k: 2", .takes_losses = false},
    {.name = "hash", .keys = ", k: 2", .takes_losses = false, .is_by_place = true},
    {.name = "forced", .keys = ", k: 2", .takes_losses = false, .is_keyed = true},
    {.name = "forced", .keys = ", k: 2, load: zipf", .takes_losses = false, .is_keyed = true},
    {.name = "expert_choice",
     .keys = ", k: 2, factor: 1.3",
     .takes_losses = false,
     .takes_capacity = false},
};

std::vector<std::string> capacities_of(const PaddedRouter& router) {
  std::vector<std::string> capacities{"mode: dropless"};
  if (!router.takes_capacity) return capacities;
  for (const char* mode : {"capped", "padded"}) {
    for (const char* order : {"slot_major", "batch_priority", "probability", "position"}) {
      capacities.push_back(fmt::format("mode: {}, factor: 0.8, min: 1, order: {}", mode, order));
    }
  }
  return capacities;
}

/// Every balance loss that the router takes in each of the scopes.
std::string losses_of(const PaddedRouter& router, const std::vector<std::string>& scopes) {
  std::vector<std::string> losses;
  const auto add = [&](const std::string& keys) {
    for (const std::string& scope : scopes) {
      losses.push_back(fmt::format("{{name: {}, weight: 0.05, scope: {}}}", keys, scope));
    }
  };
  if (router.takes_losses) {
    for (const config::MemberInfo* loss : members_of<BalanceLoss>().members()) {
      if (loss->name != "load" || router.has_noise) add(loss->name);
    }
    add("switch, counts: first_choice");
  }
  return fmt::format("[{}]", fmt::join(losses, ", "));
}

struct StageOfRecipe {
  MoeOptions moe;
  static constexpr auto fields() {
    return std::tuple{field("moe", &StageOfRecipe::moe, "a stage")};
  }
};

/// Twelve samples of different lengths in groups of two, each group of seven tokens.
LayerCase uneven_case(const PaddedRouter& router, const std::string& capacity,
                      const std::vector<std::string>& scopes = {"sequence", "group", "global"}) {
  const std::string recipe = fmt::format(
      "moe: {{router: {{name: {}{}}}, capacity: {{{}}}, losses: {}, experts: {{count: 6, hidden: "
      "5}}, shared: {{count: 1, hidden: 3}}}}",
      router.name, router.keys, capacity, losses_of(router, scopes));
  LayerCase test{recipe, config::load_options_text<StageOfRecipe>(recipe, "test").options.moe};
  test.lengths = {2, 5, 4, 3, 6, 1, 3, 4, 5, 2, 1, 6};
  return test;
}

void expect_equal(const LayerResult& found, const LayerResult& expected) {
  const testing::Difference worst = difference(found, expected);
  EXPECT_LT(worst.value, 1e-12) << worst.where;
  EXPECT_TRUE(torch::allclose(found.stats, expected.stats, 1e-12, 1e-12));
}

/// Compares with a layer without lengths, whose losses are weighted by tokens, not by samples: only
/// the statistics of six units before those of the losses.
void expect_equal_but_weights(LayerResult found, LayerResult expected) {
  found.stats = found.stats.narrow(0, 0, 12);
  expected.stats = expected.stats.narrow(0, 0, 12);
  expect_equal(found, expected);
}

/// Calls `use` with each router and capacity or, unless `all`, with so many that each router meets
/// each order and each mode, and each order each mode.
template <class Use>
void for_each_case(const Use& use, bool all = true) {
  size_t number = 0;
  for (const PaddedRouter& router : kPaddedRouters) {
    const std::vector<std::string> capacities = capacities_of(router);
    ++number;
    for (size_t i = 0; i < capacities.size(); ++i) {
      // Number 0 is dropless, 1 to 4 are the capped orders, 5 to 8 the padded ones.
      if (!all && i > 0 && (i + i / 5 + number) % 2 == 1) continue;
      SCOPED_TRACE(router.name + router.keys + ", " + capacities[i]);
      use(router, capacities[i]);
    }
  }
}

TEST(MoeLayerPadding, CasesHaveEveryRouter) {
  std::set<std::string> names, registered;
  for (const PaddedRouter& router : kPaddedRouters) names.insert(router.name);
  for (const config::MemberInfo* router : members_of<Router>().members()) {
    registered.insert(router->name);
  }
  EXPECT_EQ(names, registered);
}

TEST(MoeLayerPadding, ChangesNoBit) {  // L4
  for_each_case([](const PaddedRouter& router, const std::string& capacity) {
    LayerCase test = uneven_case(router, capacity);
    for (const bool training : {true, false}) {
      if (!training && capacity != "mode: dropless") continue;  // as every evaluation
      test.training = training;
      test.padding = 0;
      const LayerResult expected = run_layer_on(test, 1, 1);
      EXPECT_EQ(expected.tensors.at("padding").item<double>(), 0.0);
      test.padding = 3;
      const LayerResult found = run_layer_on(test, 1, 1);
      for (const auto& [name, tensor] : expected.tensors) {
        EXPECT_TRUE(torch::equal(found.tensors.at(name), tensor)) << name;
      }
      EXPECT_TRUE(torch::equal(found.stats, expected.stats));
      expect_equal(found, expected);  // the loss sums the padding's zeros too
    }
  });
}

TEST(MoeLayerPadding, SamplesOfOneLengthAreWhatTheyAreWithoutLengths) {
  for_each_case([](const PaddedRouter& router, const std::string& capacity) {
    if (router.is_keyed) return;
    LayerCase test = uneven_case(router, capacity);
    test.lengths.clear();
    const LayerResult expected = run_layer_on(test, 1, 1);
    test.lengths.assign(static_cast<size_t>(test.num_samples), test.rows_per_sample);
    test.padding = 2;
    expect_equal_but_weights(run_layer_on(test, 1, 1), expected);
  });
}

// A group of samples is compared and limited as if its tokens were one sample's.
TEST(MoeLayerPadding, GroupsAreRoutedAsOneSampleOfTheirTokens) {
  for_each_case([](const PaddedRouter& router, const std::string& capacity) {
    if (router.is_keyed || router.is_by_place) return;
    LayerCase test = uneven_case(router, capacity, {"group", "global"});
    test.padding = 2;
    const LayerResult found = run_layer_on(test, 1, 1);
    test.lengths.clear();
    test.num_samples = 6;
    test.rows_per_sample = 7;
    test.samples_per_group = 1;
    expect_equal_but_weights(found, run_layer_on(test, 1, 1));
  });
}

// Each rank pads to its own longest sample.
TEST(MoeLayerPaddingRanks, ParallelEqualsSerial) {
  const auto run = [](const PaddedRouter& router, const std::string& capacity) {
    LayerCase test = uneven_case(router, capacity);
    const LayerResult expected = run_layer_on(test, 1, 1);
    test.padding = 1;
    for (const auto& [expert_ranks, replicas] :
         {std::pair{2, 1}, std::pair{1, 2}, std::pair{3, 1}}) {
      SCOPED_TRACE(fmt::format("{} x {}", expert_ranks, replicas));
      test.options.exchange.chunks = expert_ranks == 2 ? 2 : 1;
      expect_equal(run_layer_on(test, expert_ranks, replicas), expected);
    }
  };
  for_each_case(run, /*all=*/false);
}

}  // namespace
}  // namespace shoal
