#include <ATen/ops/linear.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/moe/routers/router_fixture.h"

// T tokens  D width  U units
namespace shoal {
namespace {

using testing::apart;
using ::testing::HasSubstr;
using testing::problems_of;
using testing::route_all;
using testing::router_of;
using testing::some_numbers;

TEST(MlpRouter, ScoresAreTheSoftmaxOfTwoLayersWithRelu) {
  auto router = router_of("{name: mlp, k: 2, hidden: 5}", {6, 4, torch::kFloat64});
  const std::vector<torch::Tensor> weights = router->parameters();
  ASSERT_EQ(weights.size(), 4u);
  const torch::Tensor x = some_numbers({9, 6}, 1);
  const torch::Tensor hidden = at::linear(x, weights[0], weights[1]).relu();
  const torch::Tensor prob = at::linear(hidden, weights[2], weights[3]).softmax(1);
  const Routing routing = route_all(*router, x);
  EXPECT_LT(apart(routing.prob_TU, prob), 1e-15);
  EXPECT_TRUE(torch::equal(routing.choice_TK, std::get<1>(prob.topk(2, 1))));
  EXPECT_LT(apart(routing.weight_TK, std::get<0>(prob.topk(2, 1))), 1e-15);
}

TEST(MlpRouter, HasOneChoiceNoNoiseAndHalfTheWidthByDefault) {
  auto router = router_of("{name: mlp}", {6, 4, torch::kFloat64});
  EXPECT_EQ(router->units_per_token(), 1);
  EXPECT_FALSE(router->has_noise());
  EXPECT_EQ(router->parameters()[0].sizes(), at::IntArrayRef({3, 6}));
  EXPECT_THAT(problems_of("{name: mlp, k: 5}", 4).at(0), HasSubstr("router.k"));
}

}  // namespace
}  // namespace shoal
