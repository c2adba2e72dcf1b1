#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "moe/exchange/unit_placement.h"
#include "moe/kernels/permute_rows.h"
#include "moe/kernels/unit_rows.h"
#include "runtime/kernels/activation.h"
#include "runtime/module/linear.h"
#include "runtime/module/module.h"
#include "runtime/options/registry.h"

// T tokens  R rows on this rank  D width  u units on this rank
namespace shoal {

/// Shape of units that are two-layer MLPs, plain or gated (ExpertBank).
struct MlpForm {
  int64_t hidden;  ///< hidden width
  Activation activation;
  bool has_bias, has_gate;
};

/// The units of a MoE layer (MLP experts, memory units) that this rank holds. A row is a token
/// routed to one unit. Registered for `experts` of a MoE layer in the YAML recipe. A bank overrides
/// forward() and placement(); all other methods have defaults.
class UnitBank : public ModuleBase {
 public:
  /// The layer that a bank is built for.
  struct Context {
    int64_t width = 0;  ///< width D of input and output
    int64_t rank = 0;   ///< this rank's index among the ranks to which `place` assigns units
    /// Assigns units to ranks, by default all to one; called once, with the units' costs.
    PlaceUnits place = [](const std::vector<double>& cost_U) {
      return UnitPlacement::contiguous(static_cast<int64_t>(cost_U.size()), 1);
    };
    torch::TensorOptions tensor_options;  ///< for the units' parameters
    std::optional<MlpInits> inits = {};   ///< initial values of MLPs; default: the bank's own
  };
  static constexpr std::string_view kNameKey = "kind";         ///< recipe key that names the choice
  static constexpr std::string_view kNoun = "kind of expert";  ///< in error messages

  /// rows_RD are sorted by unit; rows_u[i] of them belong to unit
  /// placement().units_of_rank(rank)[i]. Returns [R, D]. Units without rows get gradients that are
  /// exactly zero. On a GPU trailing padding rows are ignored; their outputs are unspecified.
  virtual torch::Tensor forward(const torch::Tensor& rows_RD, const UnitRows& rows_u) = 0;
  /// Returns the rows of forward() times their combine weights weight_R [R], float32 or wider.
  virtual torch::Tensor forward_weighted(const torch::Tensor& rows_RD, const UnitRows& rows_u,
                                         const torch::Tensor& weight_R);
  using ForwardWeighted = std::function<torch::Tensor(
      const torch::Tensor& rows_RD, const UnitRows& rows_u, const torch::Tensor& weight_R)>;
  /// Cuts this rank's units into `num_parts` >= 2 runs and returns forward_weighted for each run,
  /// so that one run computes while rows of the next are exchanged. Call each function once per
  /// forward pass, with counts on the host. Each rows_u lists all units, 0 for units of other runs.
  virtual std::vector<ForwardWeighted> split(int64_t num_parts);
  /// For a rank that has all units: returns sums by token of outputs times combine weights, [T, D].
  /// `rows`: each row's token and combine weight, and each unit's number of rows.
  virtual torch::Tensor forward_local(const torch::Tensor& x_TD, const TokenRows& rows);
  /// True if units are memory units (key-value tables), not experts.
  virtual bool are_memory_units() const { return false; }
  /// Returns the shape of MLP units, else nullopt. Upcycling copies a dense model's MLPs into them.
  virtual std::optional<MlpForm> mlp_form() const { return std::nullopt; }
  /// Returns which rank holds each unit of the layer.
  virtual const UnitPlacement& placement() const = 0;
};

}  // namespace shoal
