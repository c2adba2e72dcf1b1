#include "models/moco/momentum_encoder.h"

#include <gtest/gtest.h>

#include <utility>

namespace shoal {
namespace {

TEST(MomentumOptions, RiseToOneByACosine) {
  const MomentumOptions cosine{0.99, MomentumSchedule::kCosine};
  EXPECT_NEAR(cosine.at(0, 300), 0.99, 1e-12);
  EXPECT_NEAR(cosine.at(75, 300), 0.9914644661, 1e-10);
  EXPECT_NEAR(cosine.at(150, 300), 0.995, 1e-12);
  EXPECT_NEAR(cosine.at(225, 300), 0.9985355339, 1e-10);
  EXPECT_NEAR(cosine.at(300, 300), 1.0, 1e-12);
  EXPECT_EQ((MomentumOptions{0.99, MomentumSchedule::kConstant}.at(299, 300)), 0.99);
}

TEST(MomentumEncoder, BeginsAsTheQueryEncoderAndFollowsIt) {
  const auto scalar = [](double value) { return torch::full({1}, value, torch::kFloat64); };
  const torch::Tensor key = scalar(7), query = scalar(1), key_bias = scalar(3), bias = scalar(0);
  MomentumEncoder rule({{key, query}}, {{key_bias, bias}}, {0.99, MomentumSchedule::kConstant},
                       /*total_steps=*/10);
  rule.before_forward(0);
  EXPECT_EQ(key.item<double>(), 1.0);
  query.fill_(2);
  bias.fill_(5);
  rule.before_forward(1);
  EXPECT_NEAR(key.item<double>(), 1.01, 1e-15);
  EXPECT_EQ(key_bias.item<double>(), 5.0) << "what is no weight is copied";
  query.fill_(4);
  rule.before_forward(2);
  EXPECT_NEAR(key.item<double>(), 1.0399, 1e-15);
}

}  // namespace
}  // namespace shoal
