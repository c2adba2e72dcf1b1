#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "moe/exchange/unit_placement.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/random/step_context.h"

// b images of this rank  B images of all ranks of the expert group  U units  u units of this rank
// s slots of a unit  D width
namespace shoal {

/// Returns the number of images (samples) of each rank of the expert group in this micro-step
/// (forward pass), by the rule that divides samples among ranks, without communication.
std::vector<int64_t> images_of_ranks(const StepContext& step, const RankGrid& grid);

/// The all-to-all of soft routing (Soft MoE, Nexus layers). A unit (expert or memory unit) gets s
/// slots of each image: weighted means of the image's tokens. Sends slots to units, outputs back.
///
/// Counts are known beforehand, so only slots are exchanged: a rank sends D s (b (U - u) + u (B -
/// b)) elements to other ranks, there and back together, and as many in the backward pass. One rank
/// exchanges nothing. Images arrive in the order of the micro-step's samples, whatever their ranks.
class SlotExchange {
 public:
  /// `expert`: the ranks over which units are spread; must outlive the graph. TORCH_CHECK unless
  /// placement and images_of_rank are for as many ranks.
  SlotExchange(const UnitPlacement& placement, std::vector<int64_t> images_of_rank,
               Communicator& expert);

  /// Sends slots to their units: [b, U, s, D] -> [u, B, s, D], contiguous; b, u and B may be 0.
  /// Differentiable. Collective over `expert`, forward and backward.
  torch::Tensor to_units(const torch::Tensor& slots_bUsD) const;
  /// Inverts to_units: [u, B, s, D] -> [b, U, s, D], contiguous.
  torch::Tensor to_images(const torch::Tensor& slots_uBsD) const;

 private:
  torch::Tensor permute_units(const torch::Tensor& slots_Ubsd, bool to_ranks) const;

  UnitPlacement placement_;
  std::vector<int64_t> images_of_rank_;
  Communicator* expert_;
  RowCounts to_units_rows_, from_images_rows_;  ///< rows are [s, D]: one image in one unit
};

}  // namespace shoal
