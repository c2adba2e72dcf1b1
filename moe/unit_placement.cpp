#include "moe/unit_placement.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "runtime/size_limits.h"

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

UnitPlacement::UnitPlacement(const std::vector<int64_t>& rank_of_unit, int64_t num_ranks)
    : num_units_(static_cast<int64_t>(rank_of_unit.size())),
      is_contiguous_(std::is_sorted(rank_of_unit.begin(), rank_of_unit.end())),
      units_of_rank_(static_cast<size_t>(num_ranks)) {
  for (int64_t unit = 0; unit < num_units_; ++unit) {
    const int64_t rank = rank_of_unit[static_cast<size_t>(unit)];
    TORCH_CHECK(rank >= 0 && rank < num_ranks, "unit ", unit, " is placed on rank ", rank, " of ",
                num_ranks);
    units_of_rank_[static_cast<size_t>(rank)].push_back(unit);
  }
}

}  // namespace shoal
