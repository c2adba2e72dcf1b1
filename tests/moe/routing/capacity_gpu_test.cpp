#include "moe/routing/capacity.h"

#include "tests/moe/routing/make_routing.h"
#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

// T tokens  U units  K choices per token
namespace shoal {
namespace {

using testing::make_routing;
using testing::some_numbers;

constexpr CapacityMode kModes[] = {CapacityMode::kDropless, CapacityMode::kCapped,
                                   CapacityMode::kPadded};
constexpr CapacityOrder kOrders[] = {CapacityOrder::kSlotMajor, CapacityOrder::kBatchPriority,
                                     CapacityOrder::kProbability, CapacityOrder::kPosition};

/// Groups of 40 tokens, the last one of what is left.
std::vector<int64_t> groups_of(int64_t num_tokens) {
  std::vector<int64_t> offsets{0};
  while (offsets.back() < num_tokens) offsets.push_back(std::min(num_tokens, offsets.back() + 40));
  return offsets;
}

/// Logits of few different values, so that scores are equal; some tokens are masked.
Routing some_routing(int64_t num_tokens, int64_t num_units, int64_t k) {
  const torch::Tensor logits =
      (some_numbers({num_tokens, num_units}, 1, torch::kFloat32) * 2).round();
  Routing routing = make_routing(logits, k, groups_of(num_tokens));
  const torch::Tensor is_masked = torch::arange(num_tokens).remainder(9) == 4;
  routing.unit_TK = routing.choice_TK.masked_fill(is_masked.unsqueeze(1), -1);
  return routing;
}

class CapacityGpu : public testing::OnGpu {
 protected:
  Routing on_gpu_too(Routing routing) const {
    for (torch::Tensor* tensor :
         {&routing.unit_TK, &routing.choice_TK, &routing.weight_TK, &routing.score_TK}) {
      *tensor = on_gpu(*tensor);
    }
    return routing;
  }
  /// Expects equal rows; rows after them on the GPU are padding.
  static void expect_same_rows(const TokenAssignments& expected, const TokenAssignments& found) {
    expect_same(expected.rows_U, found.rows_U);
    expect_same(expected.num_kept, found.num_kept);
    const int64_t num_rows = expected.token_A.size(0);
    ASSERT_GE(found.token_A.size(0), num_rows);
    expect_same(expected.token_A, found.token_A.narrow(0, 0, num_rows));
    expect_same(expected.choice_A, found.choice_A.narrow(0, 0, num_rows));
    EXPECT_TRUE((found.token_A.slice(0, num_rows) == -1).all().item<bool>());
    EXPECT_TRUE((found.choice_A.slice(0, num_rows) == -1).all().item<bool>());
    const torch::Tensor is_row = expected.token_A >= 0;
    expect_close(expected.weight_A.masked_fill(is_row.logical_not(), 0),
                 found.weight_A.narrow(0, 0, num_rows)
                     .masked_fill(is_row.logical_not().to(found.weight_A.device()), 0),
                 8);
  }
};

TEST_F(CapacityGpu, KeepsWhatTheCpuKeeps) {
  for (const CapacityMode mode : kModes) {
    for (const CapacityOrder order : kOrders) {
      for (const auto& [num_units, k] :
           std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {4, 2}, {7, 3}, {64, 8}, {256, 2}}) {
        for (const int64_t num_tokens : {0, 3, 40, 200, 217}) {
          for (const double factor : {0.3, 1.05}) {
            Routing routing = some_routing(num_tokens, num_units, k);
            routing.renorm_after_drop = factor < 1;
            const Capacity capacity{mode, factor, /*min=*/1, /*align=*/2, order};
            expect_same_rows(apply_capacity(routing, capacity),
                             apply_capacity(on_gpu_too(routing), capacity));
          }
        }
      }
    }
  }
}

// Blocks of several warps: as many as have choices, or as the counts of all units have room for.
TEST_F(CapacityGpu, KeepsWhatTheCpuKeepsInOneLargeGroup) {
  struct Sizes {
    int64_t num_tokens, num_units, k;
  };
  for (const Sizes& sizes : {Sizes{3001, 64, 4}, Sizes{700, 1000, 2}, Sizes{300, 6000, 2}}) {
    Routing routing = some_routing(sizes.num_tokens, sizes.num_units, sizes.k);
    routing.group_offsets = {0, sizes.num_tokens};
    const Routing other = on_gpu_too(routing);
    for (const CapacityOrder order : kOrders) {
      for (const CapacityMode mode : {CapacityMode::kCapped, CapacityMode::kPadded}) {
        const Capacity capacity{mode, 0.6, /*min=*/1, /*align=*/1, order};
        expect_same_rows(apply_capacity(routing, capacity), apply_capacity(other, capacity));
      }
    }
  }
}

TEST_F(CapacityGpu, GroupsMayDifferInSize) {
  for (const CapacityMode mode : kModes) {
    for (const CapacityOrder order : kOrders) {
      for (const auto& offsets : std::vector<std::vector<int64_t>>{
               {0, 30, 70, 71, 217}, {0, 0, 100, 217}, {0, 10, 217}}) {
        Routing routing = some_routing(offsets.back(), 7, 3);
        routing.group_offsets = offsets;
        const Capacity capacity{mode, 0.6, /*min=*/1, /*align=*/2, order};
        expect_same_rows(apply_capacity(routing, capacity),
                         apply_capacity(on_gpu_too(routing), capacity));
      }
    }
  }
}

TEST_F(CapacityGpu, SortsManyChoicesOfADroplessLayer) {
  const Routing routing = some_routing(100'003, 128, 8);
  expect_same_rows(apply_capacity(routing, {}), apply_capacity(on_gpu_too(routing), {}));
}

TEST_F(CapacityGpu, GradientsOfWeightsEqualTheCpu) {
  Routing routing = some_routing(217, 5, 2);
  routing.renorm_after_drop = true;
  const Capacity capacity{CapacityMode::kCapped, 0.7, 0, 1, CapacityOrder::kProbability};
  routing.weight_TK = routing.weight_TK.detach().clone().set_requires_grad(true);
  const Routing other = on_gpu_too(routing);
  const TokenAssignments expected = apply_capacity(routing, capacity),
                         found = apply_capacity(other, capacity);
  const int64_t num_rows = expected.weight_A.size(0);
  const torch::Tensor upstream = some_numbers({num_rows}, 5, torch::kFloat32);
  (expected.weight_A * upstream).sum().backward();
  (found.weight_A.narrow(0, 0, num_rows) * on_gpu(upstream)).sum().backward();
  expect_close(routing.weight_TK.grad(), other.weight_TK.grad(), 32);
}

}  // namespace
}  // namespace shoal
