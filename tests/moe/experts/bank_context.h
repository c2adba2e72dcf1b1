#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "moe/experts/unit_bank.h"

namespace shoal::testing {

/// A rank among some that share out a bank's units in runs.
struct BankRank {
  int64_t rank = 0, num_ranks = 1;
};

inline UnitBank::Context bank_context(int64_t width, torch::TensorOptions options,
                                      const BankRank& on = {}) {
  UnitBank::Context context;
  context.width = width;
  context.rank = on.rank;
  context.place = [num_ranks = on.num_ranks](const std::vector<double>& cost_U) {
    return UnitPlacement::contiguous(static_cast<int64_t>(cost_U.size()), num_ranks);
  };
  context.tensor_options = options;
  return context;
}

/// Units have the same values on one rank and on three, and no two the same.
inline void expect_values_by_unit(
    const std::function<std::vector<Parameter>(const BankRank&)>& parameters_on) {
  const std::vector<Parameter> alone = parameters_on({});
  size_t num_compared = 0;
  for (const int64_t rank : {0, 1, 2}) {
    const std::vector<Parameter> shard = parameters_on({rank, 3});
    ASSERT_EQ(shard.size(), alone.size());
    for (size_t i = 0; i < shard.size(); ++i) {
      for (size_t row = 0; row < shard[i].unit_ids.size(); ++row, ++num_compared) {
        EXPECT_TRUE(torch::equal(shard[i].tensor[static_cast<int64_t>(row)],
                                 alone[i].tensor[shard[i].unit_ids[row]]))
            << shard[i].name;
      }
    }
  }
  EXPECT_EQ(num_compared, alone.size() * alone[0].unit_ids.size());
  EXPECT_FALSE(torch::equal(alone[0].tensor[0], alone[0].tensor[1]));
}

}  // namespace shoal::testing
