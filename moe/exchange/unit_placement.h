#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "moe/build_context.h"

namespace shoal {

/// Which rank of the expert group holds which unit. Equal on all ranks.
class UnitPlacement {
 public:
  /// Runs of neighbouring units; the first num_units % num_ranks ranks hold one more.
  /// A rank may hold none. TORCH_CHECK unless there are 0 to kMostUnits units and a rank.
  static UnitPlacement contiguous(int64_t num_units, int64_t num_ranks);
  /// Longest processing time first: units by falling cost, each to the rank with the least cost so
  /// far. Ties go to the lower unit and the lower rank. TORCH_CHECK unless costs are finite and not
  /// negative. Source: Graham 1969.
  static UnitPlacement by_cost(const std::vector<double>& cost_U, int64_t num_ranks);
  /// Any assignment. TORCH_CHECK unless each rank_of_unit[u] is in [0, num_ranks).
  UnitPlacement(std::vector<int64_t> rank_of_unit, int64_t num_ranks);

  int64_t num_units() const { return static_cast<int64_t>(rank_of_unit_.size()); }
  int64_t num_ranks() const { return static_cast<int64_t>(units_of_rank_.size()); }
  /// Global ids, ascending.
  const std::vector<int64_t>& units_of_rank(int64_t rank) const {
    return units_of_rank_[static_cast<size_t>(rank)];
  }
  const std::vector<int64_t>& rank_of_unit() const { return rank_of_unit_; }
  /// All units, rank by rank.
  std::vector<int64_t> units_by_rank() const;
  /// How many units each rank has.
  std::vector<int64_t> num_units_of_ranks() const;
  /// The least number of units of a rank that has any; 0 without units.
  int64_t fewest_units() const;
  /// Whether units sorted by id are also sorted by rank.
  bool is_contiguous() const { return is_contiguous_; }

 private:
  std::vector<int64_t> rank_of_unit_;
  bool is_contiguous_;
  std::vector<std::vector<int64_t>> units_of_rank_;
};

/// The placement of a layer's units, given the cost of a row in each, in any one measure.
using PlaceUnits = std::function<UnitPlacement(const std::vector<double>& cost_U)>;

/// The recipe's rule for the layer at `path`. By load, a unit counts as chosen at least once, so
/// that units without load are spread too. A layer without logged load, or with that of another
/// number of units, is placed contiguously.
PlaceUnits placement_rule(const BuildContext& context, const std::string& path);

}  // namespace shoal
