#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace shoal {

/// The rule by which the units of a MoE layer (experts) are spread over the expert ranks.
enum class PlacementRule {
  kContiguous,  ///< runs of neighbouring units, equally many on each rank if possible
  kByCost,      ///< equal cost on each rank, as computed by by_cost()
  kByLoad,      ///< equal load: by_cost() of how often units were chosen before the run was resumed
};

/// The load of each unit, in any one measure, by the module path of its layer.
using UnitLoads = std::map<std::string, std::vector<double>>;

/// Which rank of the expert group holds each unit of a MoE layer. Equal on all ranks.
class UnitPlacement {
 public:
  /// Places runs of neighbouring units; the first num_units % num_ranks ranks hold one more. A rank
  /// may hold none. TORCH_CHECK unless there are 0 to kMostUnits units and a rank.
  static UnitPlacement contiguous(int64_t num_units, int64_t num_ranks);
  /// Evens out the ranks' total costs: places units by falling cost, each on the rank with the
  /// least cost so far. Ties go to the lower unit and the lower rank. TORCH_CHECK unless costs are
  /// finite and not negative. Source: Graham 1969 (longest processing time first).
  static UnitPlacement by_cost(const std::vector<double>& cost_U, int64_t num_ranks);
  /// Takes any assignment. TORCH_CHECK unless each rank_of_unit[u] is in [0, num_ranks).
  UnitPlacement(std::vector<int64_t> rank_of_unit, int64_t num_ranks);

  int64_t num_units() const { return static_cast<int64_t>(rank_of_unit_.size()); }
  int64_t num_ranks() const { return static_cast<int64_t>(units_of_rank_.size()); }
  /// Returns the global ids of the units on `rank`, ascending.
  const std::vector<int64_t>& units_of_rank(int64_t rank) const {
    return units_of_rank_[static_cast<size_t>(rank)];
  }
  const std::vector<int64_t>& rank_of_unit() const { return rank_of_unit_; }
  /// Returns all units, rank by rank.
  std::vector<int64_t> units_by_rank() const;
  /// Returns the number of units of each rank.
  std::vector<int64_t> num_units_of_ranks() const;
  /// Returns the least number of units of a rank that has any; 0 without units.
  int64_t fewest_units() const;
  /// True if units sorted by id are also sorted by rank.
  bool is_contiguous() const { return is_contiguous_; }

 private:
  std::vector<int64_t> rank_of_unit_;
  bool is_contiguous_;
  std::vector<std::vector<int64_t>> units_of_rank_;
};

/// A function that places a layer's units, given the cost of a row in each unit in any measure.
using PlaceUnits = std::function<UnitPlacement(const std::vector<double>& cost_U)>;

}  // namespace shoal
