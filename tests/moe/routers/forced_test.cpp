#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/base/error.h"
#include "tests/moe/routers/router_fixture.h"
#include "tests/support/scratch_folder.h"

// R rows per sample  U units
namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::router_of;
using testing::step_of;
using testing::values;
using Ids = std::vector<int64_t>;

Routing route_forced(Router& router, const StepContext& step, int64_t rows) {
  const torch::Tensor x = torch::zeros({step.sample_b.size(0) * rows, 3}, torch::kFloat64);
  return router.route(x, make_token_context(step, 5, rows));
}

std::vector<double> shares(const Routing& routing) {
  const torch::Tensor count = routing.choice_TK.flatten().bincount({}, routing.num_units);
  const torch::Tensor share = count.to(torch::kFloat64) / static_cast<double>(routing.num_tokens());
  return {share.data_ptr<double>(), share.data_ptr<double>() + routing.num_units};
}

bool choices_are_distinct(const Routing& routing) {
  const torch::Tensor sorted = std::get<0>(routing.choice_TK.sort(1));
  const int64_t k = routing.choices_per_token();
  return k < 2 || (sorted.slice(1, 1) != sorted.slice(1, 0, k - 1)).all().item<bool>();
}

TEST(Forced, BalancedGivesEveryUnitTheSame) {
  auto router = router_of("{name: forced, k: 2}", {3, 6, torch::kFloat64});
  const Routing routing = route_forced(*router, step_of(4, 2), 9);
  EXPECT_EQ(values(routing.choice_TK.flatten().bincount()), (Ids{12, 12, 12, 12, 12, 12}));
  EXPECT_TRUE(choices_are_distinct(routing));
  EXPECT_TRUE((routing.weight_TK == 0.5).all().item<bool>());
}

TEST(Forced, BalancedDoesNotDependOnTheSamplesBeside) {
  auto router = router_of("{name: forced, k: 2}", {3, 5, torch::kFloat64});
  StepContext last = step_of(1, 2);
  last.sample_b += 3;
  EXPECT_TRUE(torch::equal(route_forced(*router, step_of(4, 2), 7).choice_TK.slice(0, 21),
                           route_forced(*router, last, 7).choice_TK));
}

TEST(Forced, OneGivesAllTokensToItsUnit) {
  auto router = router_of("{name: forced, k: 1, load: one, unit: 2}", {3, 4, torch::kFloat64});
  const Routing routing = route_forced(*router, step_of(500, 10), 100);
  EXPECT_THAT(shares(routing), ElementsAre(0, 0, 1, 0));
  EXPECT_TRUE((routing.weight_TK == 1).all().item<bool>());
}

// Shares 1 : 1/2 : 1/3 : 1/4 over 25/12: 0.48, 0.24, 0.16, 0.12.
TEST(Forced, ZipfFollowsItsExponent) {
  auto router = router_of("{name: forced, k: 1, load: zipf}", {3, 4, torch::kFloat64});
  const std::vector<double> share = shares(route_forced(*router, step_of(500, 10), 100));
  const double expected[] = {0.48, 0.24, 0.16, 0.12};
  for (size_t u = 0; u < 4; ++u) EXPECT_NEAR(share[u], expected[u], 0.006);
}

// Shares 1 : 2^-20 : 3^-20 : 4^-20 of two distinct units a token: the first one in each, then
// nearly always the second.
TEST(Forced, AUnitIsAtMostOnceAmongATokensChoices) {
  auto router =
      router_of("{name: forced, k: 2, load: zipf, exponent: 20}", {3, 4, torch::kFloat64});
  const Routing routing = route_forced(*router, step_of(500, 10), 100);
  EXPECT_TRUE(choices_are_distinct(routing));
  const std::vector<double> share = shares(routing);
  EXPECT_EQ(share[0], 1.0);
  EXPECT_GT(share[1], 0.99);
}

TEST(Forced, DrawsDifferByStep) {
  auto router = router_of("{name: forced, k: 1, load: zipf}", {3, 4, torch::kFloat64});
  StepContext step = step_of(9, 2), later = step_of(9, 2);
  later.step = 12;
  EXPECT_TRUE(torch::equal(route_forced(*router, step, 9).choice_TK,
                           route_forced(*router, step, 9).choice_TK));
  EXPECT_FALSE(torch::equal(route_forced(*router, step, 9).choice_TK,
                            route_forced(*router, later, 9).choice_TK));
}

class ForcedReplay : public ::testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(file_) << text; }
  std::shared_ptr<Router> make(int64_t k = 2) {
    return router_of(fmt::format("{{name: forced, k: {}, load: replay, file: {}}}", k, file_),
                     {3, 4, torch::kFloat64, "blocks.1.moe"});
  }
  /// Shares of 30,000 tokens with k distinct units each.
  std::vector<double> replayed(const std::string& load, int64_t k) {
    write(R"({"step":5,"layer":"blocks.1.moe","load":)" + load + "}\n");
    const Routing routing = route_forced(*make(k), step_of(300, 10), 100);
    EXPECT_TRUE(choices_are_distinct(routing)) << load;
    return shares(routing);
  }
  testing::ScratchFolder folder_;
  std::string file_ = folder_.path() + "/experts.jsonl";
};

TEST_F(ForcedReplay, RepeatsTheSharesOfTheStep) {
  write(R"({"step":5,"layer":"blocks.1.moe","load":[50,30,10,10]}
{"step":5,"layer":"blocks.2.moe","load":[1,1,1,1]}
{"step":20,"layer":"blocks.1.moe","load":[10,10,30,50]}
)");
  auto router = make();
  StepContext early = step_of(300, 10), between = step_of(300, 10), late = step_of(300, 10);
  early.step = 0;
  between.step = 12;
  late.step = 30;
  const double first[] = {1.0, 0.6, 0.2, 0.2}, last[] = {0.2, 0.2, 0.6, 1.0};
  for (const StepContext* step : {&early, &between, &late}) {
    const Routing routing = route_forced(*router, *step, 100);
    EXPECT_TRUE(choices_are_distinct(routing));
    const double* expected = step == &late ? last : first;
    for (size_t u = 0; u < 4; ++u) EXPECT_NEAR(shares(routing)[u], expected[u], 0.01) << u;
  }
}

void expect_near(const std::vector<double>& share_U, const std::vector<double>& expected_U) {
  for (size_t u = 0; u < 4; ++u) EXPECT_NEAR(share_U[u], expected_U[u], 0.01) << u;
}

// None of two distinct units a token can have more than all tokens: 2 * (8/15, 4/15, 2/15, 1/15) is
// cut at 1, and the rest goes to the others 4 : 2 : 1.
TEST_F(ForcedReplay, WhatAUnitCannotHaveGoesToTheOthersInProportion) {
  expect_near(replayed("[8,4,2,1]", 2), {1.0, 4.0 / 7, 2.0 / 7, 1.0 / 7});
}

TEST_F(ForcedReplay, WhatIsLeftOfFewerLoadedUnitsThanChoicesIsSpreadEvenly) {
  expect_near(replayed("[100,0,0,0]", 3), {1.0, 2.0 / 3, 2.0 / 3, 2.0 / 3});
  expect_near(replayed("[0,0,0,0]", 2), {0.5, 0.5, 0.5, 0.5});
  expect_near(replayed("[0,0,7,1]", 4), {1.0, 1.0, 1.0, 1.0});
}

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST_F(ForcedReplay, RefusesFilesThatDoNotFit) {
  EXPECT_THAT(error_of([&] { make(); }), HasSubstr("cannot be read"));
  write("{\"step\":5,\"layer\":\"blocks.2.moe\",\"load\":[1,1,1,1]}\n");
  EXPECT_THAT(error_of([&] { make(); }), HasSubstr("has no record of layer blocks.1.moe"));
  write("{\"step\":5,\"layer\":\"blocks.1.moe\",\"load\":[1,1,1]}\n");
  EXPECT_THAT(error_of([&] { make(); }),
              HasSubstr("experts.jsonl:1: loads of 3 units, blocks.1.moe has 4"));
  write("{\"step\":5,\"layer\":\"blocks.1.moe\",\"load\":[1,1,1,-1]}\n");
  EXPECT_THAT(error_of([&] { make(); }), HasSubstr("experts.jsonl:1: not a record"));
}

TEST(Forced, ReplayNeedsAFileAndNothingElseTakesOne) {
  EXPECT_THROW(router_of("{name: forced, load: replay}", {3, 4, torch::kFloat64}), ConfigError);
  EXPECT_THROW(router_of("{name: forced, file: x}", {3, 4, torch::kFloat64}), ConfigError);
}

}  // namespace
}  // namespace shoal
