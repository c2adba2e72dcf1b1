#include "moe/exchange/slot_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/ranks.h"

// b images of this rank  B images of the expert group  U units  s slots of a unit  D width
namespace shoal {
namespace {

using ::testing::ElementsAre;
using testing::run_grid;
using testing::self_grid;
using Ids = std::vector<int64_t>;

constexpr int64_t kSlots = 2, kSlotWidth = 3;

/// One number for each element: image * 1000 + unit * 100 + slot * 10 + column.
torch::Tensor labels(int64_t first_image, int64_t num_images, int64_t num_units) {
  const auto range = [](int64_t count, int64_t step) {
    return torch::arange(count, torch::kFloat64) * static_cast<double>(step);
  };
  return (range(num_images, 1000) + static_cast<double>(first_image) * 1000).view({-1, 1, 1, 1}) +
         range(num_units, 100).view({1, -1, 1, 1}) + range(kSlots, 10).view({1, 1, -1, 1}) +
         range(kSlotWidth, 1).view({1, 1, 1, -1});
}

struct Layout {
  UnitPlacement placement;
  Ids images;  ///< of each rank of the expert group
  int64_t first_of(int64_t rank) const {
    return std::accumulate(images.begin(), images.begin() + rank, int64_t{0});
  }
  int64_t all() const { return first_of(static_cast<int64_t>(images.size())); }
};

/// Even, uneven and scattered units; even shares of images, uneven ones, and ranks without.
std::vector<Layout> layouts() {
  return {{UnitPlacement::contiguous(4, 2), {3, 3}},
          {UnitPlacement::contiguous(5, 2), {1, 4}},
          {UnitPlacement({1, 0, 1, 0, 1}, 2), {2, 3}},
          {UnitPlacement::contiguous(5, 3), {2, 0, 1}},
          {UnitPlacement({2, 2, 0, 2, 0, 2}, 3), {0, 1, 4}},
          {UnitPlacement({3, 1, 0, 1, 3, 0, 3}, 4), {2, 0, 0, 3}},
          {UnitPlacement::contiguous(3, 4), {0, 0, 0, 0}}};
}

TEST(SlotExchangeRanks, BringsEachUnitTheSlotsOfAllImagesInTheirOrder) {
  for (const Layout& layout : layouts()) {
    run_grid(layout.placement.num_ranks(), 1, [&](RankGrid& grid) {
      const int64_t rank = grid.expert->rank(), num_units = layout.placement.num_units();
      const int64_t own = layout.images[static_cast<size_t>(rank)];
      const SlotExchange exchange(layout.placement, layout.images, *grid.expert);
      const torch::Tensor at_units =
          exchange.to_units(labels(layout.first_of(rank), own, num_units));
      const Ids& units = layout.placement.units_of_rank(rank);
      const torch::Tensor expected = labels(0, layout.all(), num_units)
                                         .index_select(1, torch::tensor(units, torch::kInt64))
                                         .transpose(0, 1);
      EXPECT_TRUE(torch::equal(at_units, expected)) << "rank " << rank;
      EXPECT_TRUE(at_units.is_contiguous());
    });
  }
}

TEST(SlotExchangeRanks, TheWayBackIsTheInverseAndSoIsItsGradient) {
  for (const Layout& layout : layouts()) {
    run_grid(layout.placement.num_ranks(), 1, [&](RankGrid& grid) {
      const int64_t rank = grid.expert->rank(), num_units = layout.placement.num_units();
      const int64_t own = layout.images[static_cast<size_t>(rank)];
      const SlotExchange exchange(layout.placement, layout.images, *grid.expert);
      const torch::Tensor slots =
          labels(layout.first_of(rank), own, num_units).set_requires_grad(true);
      const torch::Tensor at_units = exchange.to_units(slots);
      // Each unit multiplies by a number of its own.
      const torch::Tensor factor_u =
          torch::tensor(layout.placement.units_of_rank(rank), torch::kFloat64) + 2;
      const torch::Tensor back = exchange.to_images(at_units * factor_u.view({-1, 1, 1, 1}));
      const torch::Tensor factor_U =
          (torch::arange(num_units, torch::kFloat64) + 2).view({1, -1, 1, 1});
      EXPECT_TRUE(torch::equal(back, slots * factor_U)) << "rank " << rank;
      const torch::Tensor upstream = labels(7 * rank, own, num_units);
      back.backward(upstream);
      EXPECT_TRUE(torch::equal(slots.grad(), upstream * factor_U)) << "rank " << rank;
    });
  }
}

/// Bytes that a rank sends on a way there and back again, of elements of this type.
void expect_bytes(const Layout& layout, at::ScalarType dtype, RankGrid& grid) {
  const int64_t rank = grid.expert->rank(), num_units = layout.placement.num_units();
  const int64_t own = layout.images[static_cast<size_t>(rank)];
  const auto units = static_cast<int64_t>(layout.placement.units_of_rank(rank).size());
  const SlotExchange exchange(layout.placement, layout.images, *grid.expert);
  const int64_t before = grid.expert->counters().sent_bytes;
  const torch::Tensor slots = labels(0, own, num_units).to(dtype).set_requires_grad(true);
  const torch::Tensor back = exchange.to_images(exchange.to_units(slots));
  const int64_t forward = grid.expert->counters().sent_bytes - before;
  // The images are those of the expert group; the other replica has its own.
  const int64_t expected = slots.element_size() * kSlotWidth * kSlots *
                           (own * (num_units - units) + units * (layout.all() - own));
  EXPECT_EQ(forward, expected) << "rank " << rank;
  back.sum().backward();
  EXPECT_EQ(grid.expert->counters().sent_bytes - before, 2 * expected) << "rank " << rank;
  // Two exchanges there and two back: none of counts.
  EXPECT_EQ(grid.expert->counters().all_to_all, 4);
  EXPECT_EQ(grid.expert->counters().all_gather + grid.expert->counters().all_reduce, 0);
}

TEST(SlotExchangeRanks, SendsExactlyTheSlotsThatLiveElsewhere) {
  for (const at::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    for (const Layout& layout : layouts()) {
      run_grid(layout.placement.num_ranks(), 2,
               [&](RankGrid& grid) { expect_bytes(layout, dtype, grid); });
    }
  }
}

TEST(SlotExchange, ExchangesNothingOnOneRank) {
  RankGrid grid = self_grid();
  const SlotExchange exchange(UnitPlacement::contiguous(3, 1), {2}, *grid.expert);
  const torch::Tensor slots = labels(0, 2, 3);
  const torch::Tensor at_units = exchange.to_units(slots);
  EXPECT_TRUE(torch::equal(at_units, slots.transpose(0, 1)));
  EXPECT_TRUE(torch::equal(exchange.to_images(at_units), slots));
  EXPECT_EQ(grid.expert->counters().all_to_all, 0);
}

TEST(SlotExchangeRanks, EveryRankKnowsTheImagesOfItsGroup) {
  StepContext step;
  step.samples_per_group = 2;
  step.samples_in_micro = 7;  // groups of 2, 2, 2 and 1
  run_grid(3, 1,
           [&](RankGrid& grid) { EXPECT_THAT(images_of_ranks(step, grid), ElementsAre(2, 2, 3)); });
  run_grid(2, 2, [&](RankGrid& grid) {
    if (grid.world->rank() < 2) {
      EXPECT_THAT(images_of_ranks(step, grid), ElementsAre(2, 2));
    } else {
      EXPECT_THAT(images_of_ranks(step, grid), ElementsAre(2, 1));
    }
  });
}

TEST(SlotExchange, RefusesWhatDoesNotFit) {
  RankGrid grid = self_grid();
  const UnitPlacement placement = UnitPlacement::contiguous(3, 1);
  EXPECT_THROW(SlotExchange(UnitPlacement::contiguous(3, 2), {2}, *grid.expert), c10::Error);
  EXPECT_THROW(SlotExchange(placement, {2, 1}, *grid.expert), c10::Error);
  const SlotExchange exchange(placement, {2}, *grid.expert);
  EXPECT_THROW(exchange.to_units(labels(0, 3, 3)), c10::Error);
  EXPECT_THROW(exchange.to_units(labels(0, 2, 4)), c10::Error);
  EXPECT_THROW(exchange.to_images(labels(0, 3, 3)), c10::Error);
}

}  // namespace
}  // namespace shoal
