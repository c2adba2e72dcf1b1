#pragma once

#include <cstdint>
#include <vector>

namespace shoal {

/// Which rank of the expert group holds which unit. Equal on all ranks.
class UnitPlacement {
 public:
  /// Runs of neighbouring units; the first num_units % num_ranks ranks hold one more.
  /// A rank may hold none. TORCH_CHECK unless there are 0 to kMostUnits units and a rank.
  static UnitPlacement contiguous(int64_t num_units, int64_t num_ranks);
  /// Any assignment. TORCH_CHECK unless each rank_of_unit[u] is in [0, num_ranks).
  UnitPlacement(const std::vector<int64_t>& rank_of_unit, int64_t num_ranks);

  int64_t num_units() const { return num_units_; }
  int64_t num_ranks() const { return static_cast<int64_t>(units_of_rank_.size()); }
  /// Global ids, ascending.
  const std::vector<int64_t>& units_of_rank(int64_t rank) const {
    return units_of_rank_[static_cast<size_t>(rank)];
  }
  /// Whether units sorted by id are also sorted by rank.
  bool is_contiguous() const { return is_contiguous_; }

 private:
  int64_t num_units_;
  bool is_contiguous_;
  std::vector<std::vector<int64_t>> units_of_rank_;
};

}  // namespace shoal
