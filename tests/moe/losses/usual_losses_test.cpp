#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "moe/losses/balance_losses.h"
#include "moe/moe_layer.h"
#include "runtime/base/text.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/config_writer.h"
#include "tests/moe/routers/router_fixture.h"
#include "tests/support/collected_problems.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<Router> router_called(const std::string& recipe) {
  return testing::router_of(recipe, {6, 4, torch::kFloat64});
}

/// `switch 0.01 group, z 0.1 global`.
std::string usual_of(const std::string& recipe, bool scores_only = false) {
  std::vector<std::string> words;
  for (const Choice<BalanceLoss>& loss : usual_losses(*router_called(recipe), scores_only)) {
    const auto made = Registry<BalanceLoss>::create(loss, {});
    words.push_back(fmt::format("{} {} {}", loss.name(), made->weight(), enum_name(made->scope())));
  }
  return join_words(words, ", ");
}

TEST(UsualLosses, AreThoseOfTheRoutersPaper) {
  const std::string both = "importance 0.005 group, load 0.005 group";
  EXPECT_EQ(usual_of("{name: top_k}"), both);
  EXPECT_EQ(usual_of("{name: noisy_top_k}"), both);
  EXPECT_EQ(usual_of("{name: importance_score}"), both);
  EXPECT_EQ(usual_of("{name: importance_score, noise: none}"), "importance 0.005 group");
  EXPECT_EQ(usual_of("{name: top_k, noise: none}"), "switch 0.01 group");
  EXPECT_EQ(usual_of("{name: sigmoid}"), "switch 0.01 group");
  EXPECT_EQ(usual_of("{name: sqrt_softplus}"), "switch 0.01 group");
  EXPECT_EQ(usual_of("{name: mlp}"), "switch 0.01 global, entropy 0.01 global");
}

TEST(UsualLosses, AreNoneWhereTheRouterBalancesByItself) {
  for (const char* router : {"hash", "sinkhorn", "expert_choice", "forced"}) {
    EXPECT_EQ(usual_of(fmt::format("{{name: {}}}", router)), "") << router;
  }
  for (const char* router : {"sigmoid", "top_k", "importance_score", "mlp"}) {
    EXPECT_EQ(usual_of(fmt::format("{{name: {}, bias: {{rate: 1e-3}}}}", router)), "") << router;
  }
}

TEST(UsualLosses, OfScoresAloneReadNoChoices) {
  EXPECT_EQ(usual_of("{name: mlp}", /*scores_only=*/true), "kl_uniform 0.01 global");
  EXPECT_EQ(usual_of("{name: top_k, k: 1, noise: none}", /*scores_only=*/true),
            "kl_uniform 0.01 global");
}

// Also of routers that other files register.
TEST(UsualLosses, OfEveryRouterGoWithItAndEvenOutItsLoads) {
  int64_t num_needy = 0;
  for (const config::MemberInfo* member : members_of<Router>().members()) {
    SCOPED_TRACE(member->name);
    const auto router = router_called(fmt::format("{{name: {}}}", member->name));
    const BalanceLosses losses(usual_losses(*router, /*scores_only=*/false));
    testing::CollectedProblems problems;
    losses.check(*router, member->name, problems);
    EXPECT_THAT(problems.lines, ::testing::IsEmpty());
    EXPECT_EQ(losses.evens_out_loads(), router->needs_balance_loss());
    num_needy += router->needs_balance_loss() ? 1 : 0;
  }
  EXPECT_GE(num_needy, 6);
}

// What every loss has is found in the options of each.
TEST(UsualLosses, MayBeAnyRegisteredLoss) {
  struct NamingRouter : Router {
    explicit NamingRouter(std::string_view name) : Router(1, {}), name(name) {}
    Routing route(const torch::Tensor&, const TokenContext&) override { return {}; }
    std::vector<UsualLoss> usual_losses(bool) const override {
      return {{name, 0.75, ScopeKind::kSequence}};
    }
    std::string_view name;
  };
  for (const config::MemberInfo* member : members_of<BalanceLoss>().members()) {
    const auto losses = usual_losses(NamingRouter(member->name), false);
    ASSERT_EQ(losses.size(), 1u);
    const auto made = Registry<BalanceLoss>::create(losses[0], {});
    EXPECT_EQ(made->weight(), 0.75) << member->name;
    EXPECT_EQ(made->scope(), ScopeKind::kSequence) << member->name;
  }
}

std::string resolved(const std::string& stage) {
  return config::emit(
      config::to_node(config::load_options_text<MoeOptions>("{" + stage + "}", "r.yaml").options));
}

TEST(UsualLosses, StandInTheRecipeOnceItIsRead) {
  EXPECT_EQ(resolved("losses: auto"),
            resolved("losses: [{name: importance, weight: 0.005}, {name: load, weight: 0.005}]"));
  EXPECT_EQ(resolved("losses: auto, router: {name: top_k, k: 1, noise: none}"),
            resolved("losses: [{name: switch, weight: 0.01}], router: {name: top_k, k: 1, noise: "
                     "none}"));
  EXPECT_THAT(resolved("losses: auto, router: {name: hash}"), HasSubstr("losses: []"));
  EXPECT_EQ(resolved("router: {name: top_k}"), resolved("losses: []"));  // as ever
}

TEST(UsualLosses, AreThoseOfALayerThatIsBuiltFromUnresolvedOptions) {
  MoeOptions options;
  options.losses.reset();
  const BuildContext context{.grid = nullptr,
                             .tensor_options = torch::TensorOptions().device(torch::kMeta)};
  EXPECT_EQ(MoeLayer(options, 6, "moe", context).info().unbalanced, "");
  options.losses.emplace();
  EXPECT_EQ(MoeLayer(options, 6, "moe", context).info().unbalanced, "top_k");
}

}  // namespace
}  // namespace shoal
