#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "moe/exchange/unit_placement.h"
#include "moe/kernels/permute_rows.h"
#include "moe/kernels/unit_rows.h"
#include "runtime/module/module.h"
#include "runtime/recipe/registry.h"

// T tokens  R rows on this rank  D width  u units on this rank
namespace shoal {

/// The units of a MoE layer that this rank holds. Registered under a MoE section's `experts`.
class UnitBank : public ModuleBase {
 public:
  /// What a bank is told of the layer it is in.
  struct Context {
    int64_t width = 0;                     ///< D, of input and output
    int64_t rank = 0;                      ///< this rank's, among those that `place` speaks of
    PlaceUnits place = place_on_one_rank;  ///< where units live; called once, with their costs
    torch::TensorOptions tensor_options;   ///< of the units' parameters
  };
  static constexpr std::string_view kNameKey = "kind";
  static constexpr std::string_view kNoun = "kind of expert";

  /// rows_RD are sorted by unit; rows_u[i] of them belong to unit
  /// placement().units_of_rank(rank)[i]. Returns [R, D]. Units without rows get gradients that are
  /// exactly zero. On a GPU rows of no unit may follow, which are of no meaning in the result.
  virtual torch::Tensor forward(const torch::Tensor& rows_RD, const UnitRows& rows_u) = 0;
  /// forward's rows, each times its weight, [R] of float32 or wider. Unless overridden just that.
  virtual torch::Tensor weighted(const torch::Tensor& rows_RD, const UnitRows& rows_u,
                                 const torch::Tensor& weight_R);
  /// `weighted` for the rows of some units; rows_u has all, none of them elsewhere.
  using Part = std::function<torch::Tensor(const torch::Tensor& rows_RD, const UnitRows& rows_u,
                                           const torch::Tensor& weight_R)>;
  /// For each part_of this rank's units, two at least; each is called once in a forward pass, with
  /// numbers on the host. Unless overridden `weighted` itself.
  virtual std::vector<Part> parts(int64_t num_parts);
  /// What the chosen units say of each token, summed with the rows' weights, where all units are on
  /// this rank: [T, D]. Unless overridden gather, forward and combine.
  virtual torch::Tensor visit(const torch::Tensor& x_TD, const TokenRows& rows);
  /// Where the units of this bank are, on all ranks.
  virtual const UnitPlacement& placement() const = 0;
};

}  // namespace shoal
