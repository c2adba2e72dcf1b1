#include "moe/exchange/unit_placement.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "runtime/base/size_limits.h"

namespace shoal {

UnitPlacement UnitPlacement::contiguous(int64_t num_units, int64_t num_ranks) {
  TORCH_CHECK(num_units >= 0 && num_units <= static_cast<int64_t>(kMostUnits) && num_ranks >= 1,
              num_units, " units on ", num_ranks, " ranks");
  std::vector<int64_t> rank_of_unit;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const int64_t share = num_units / num_ranks + (rank < num_units % num_ranks ? 1 : 0);
    rank_of_unit.insert(rank_of_unit.end(), static_cast<size_t>(share), rank);
  }
  return UnitPlacement(rank_of_unit, num_ranks);
}

UnitPlacement UnitPlacement::by_cost(const std::vector<double>& cost_U, int64_t num_ranks) {
  TORCH_CHECK(num_ranks >= 1, cost_U.size(), " units on ", num_ranks, " ranks");
  for (const double cost : cost_U) TORCH_CHECK(std::isfinite(cost) && cost >= 0, "cost ", cost);
  std::vector<size_t> order(cost_U.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](size_t unit) { return cost_U[unit]; });
  std::vector<double> cost_of_rank(static_cast<size_t>(num_ranks), 0.0);
  std::vector<int64_t> rank_of_unit(cost_U.size());
  for (const size_t unit : order) {
    const auto least = std::min_element(cost_of_rank.begin(), cost_of_rank.end());
    rank_of_unit[unit] = least - cost_of_rank.begin();
    *least += cost_U[unit];
  }
  return UnitPlacement(rank_of_unit, num_ranks);
}

UnitPlacement::UnitPlacement(std::vector<int64_t> rank_of_unit, int64_t num_ranks)
    : rank_of_unit_(std::move(rank_of_unit)),
      is_contiguous_(std::is_sorted(rank_of_unit_.begin(), rank_of_unit_.end())),
      units_of_rank_(static_cast<size_t>(num_ranks)) {
  for (int64_t unit = 0; unit < num_units(); ++unit) {
    const int64_t rank = rank_of_unit_[static_cast<size_t>(unit)];
    TORCH_CHECK(rank >= 0 && rank < num_ranks, "unit ", unit, " is placed on rank ", rank, " of ",
                num_ranks);
    units_of_rank_[static_cast<size_t>(rank)].push_back(unit);
  }
}

std::vector<int64_t> UnitPlacement::units_by_rank() const {
  std::vector<int64_t> all;
  for (const auto& units : units_of_rank_) all.insert(all.end(), units.begin(), units.end());
  return all;
}

int64_t UnitPlacement::fewest_units() const {
  int64_t fewest = 0;
  for (const int64_t units : num_units_of_ranks()) {
    if (units > 0 && (fewest == 0 || units < fewest)) fewest = units;
  }
  return fewest;
}

std::vector<int64_t> UnitPlacement::num_units_of_ranks() const {
  std::vector<int64_t> counts;
  for (const auto& units : units_of_rank_) counts.push_back(static_cast<int64_t>(units.size()));
  return counts;
}

}  // namespace shoal
