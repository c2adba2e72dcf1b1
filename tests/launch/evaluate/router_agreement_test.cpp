#include "launch/evaluate/router_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

MoeStats layer_of(const std::vector<int64_t>& first_unit_T, int64_t num_units = 4) {
  MoeStats stats;
  stats.layer = "blocks.1.moe_c";
  stats.placement = UnitPlacement::contiguous(num_units, 1);
  stats.first_unit_T = torch::tensor(first_unit_T, torch::kInt64);
  return stats;
}

TEST(RouterAgreement, CountsTokensThatKeepTheirFirstUnitSinceTheLastEvaluation) {
  RouterAgreement agreement;
  const auto evaluate = [&](const std::vector<std::vector<MoeStats>>& batches) {
    agreement.begin_evaluation();
    for (const auto& layers : batches) agreement.add(layers);
    return std::pair{agreement.counts().sum, agreement.counts().weight};
  };
  using Counts = std::pair<double, double>;
  EXPECT_EQ(evaluate({{layer_of({0, 1, 2}), layer_of({3, 3})}, {layer_of({1}), layer_of({})}}),
            (Counts{0, 0}));
  // The first layer changes one token of each batch, the second one of its two; -1 is no unit.
  EXPECT_EQ(evaluate({{layer_of({0, 1, 3}), layer_of({3, -1})}, {layer_of({2}), layer_of({})}}),
            (Counts{3, 6}));
  EXPECT_EQ(evaluate({{layer_of({0, 1, 3}), layer_of({3, -1})}, {layer_of({2}), layer_of({})}}),
            (Counts{5, 5}));  // of a token that never had a unit there is nothing to keep
}

TEST(RouterAgreement, TellsApartAsManyUnitsAsThereAre) {
  for (const int64_t num_units : {127, 128, 129, 256, 257, 32767, 32768, 65536}) {
    RouterAgreement agreement;
    agreement.add({layer_of({0, num_units - 1, -1}, num_units)});
    agreement.begin_evaluation();
    agreement.add({layer_of({num_units - 1, num_units - 1, -1}, num_units)});
    EXPECT_EQ(agreement.counts().sum, 1) << num_units;
  }
}

TEST(RouterAgreement, PassesOverLayersWithoutFirstUnits) {
  RouterAgreement agreement;
  const std::vector<MoeStats> layers{MoeStats{}, layer_of({1})};
  agreement.add(layers);
  agreement.begin_evaluation();
  agreement.add(layers);
  EXPECT_EQ(agreement.counts().weight, 1);
}

TEST(RouterAgreement, RefusesOtherSamples) {
  RouterAgreement agreement;
  agreement.add({layer_of({1, 2})});
  agreement.begin_evaluation();
  EXPECT_THROW(agreement.add({layer_of({1})}), c10::Error);
}

}  // namespace
}  // namespace shoal
