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
#include "runtime/kernels/bias_activation.h"
#include "runtime/module/linear.h"
#include "runtime/module/module.h"
#include "runtime/options/registry.h"

// T tokens  R rows on this rank  D width  u units on this rank
namespace shoal {

/// Shape of units that are two-layer MLPs with parameters as ExpertBank's.
struct MlpForm {
  int64_t hidden;  ///< hidden width
  Activation activation;
  bool has_bias, has_gate;
};

/// The units of a MoE layer that this rank holds. Registered under a MoE section's `experts`.
class UnitBank : public ModuleBase {
 public:
  /// The layer that a bank is built for.
  struct Context {
    int64_t width = 0;  ///< width D of input and output
    int64_t rank = 0;   ///< this rank's index in `place`
    /// Assigns units to ranks, by default all to one; called once, with the units' costs.
    PlaceUnits place = [](const std::vector<double>& cost_U) {
      return UnitPlacement::contiguous(static_cast<int64_t>(cost_U.size()), 1);
    };
    torch::TensorOptions tensor_options;  ///< for the units' parameters
    std::optional<MlpInits> inits = {};   ///< initial values of MLPs; default: their own
  };
  static constexpr std::string_view kNameKey = "kind";
  static constexpr std::string_view kNoun = "kind of expert";

  /// rows_RD are sorted by unit; rows_u[i] of them belong to unit
  /// placement().units_of_rank(rank)[i]. Returns [R, D]. Units without rows get gradients that are
  /// exactly zero. On a GPU trailing padding rows are ignored; their outputs are unspecified.
  virtual torch::Tensor forward(const torch::Tensor& rows_RD, const UnitRows& rows_u) = 0;
  /// The rows of forward(), each times its weight; weight_R [R] is float32 or wider.
  virtual torch::Tensor forward_weighted(const torch::Tensor& rows_RD, const UnitRows& rows_u,
                                         const torch::Tensor& weight_R);
  using ForwardWeighted = std::function<torch::Tensor(
      const torch::Tensor& rows_RD, const UnitRows& rows_u, const torch::Tensor& weight_R)>;
  /// Returns forward_weighted for each part_of this rank's units, `num_parts` >= 2. Each function
  /// is called once per forward pass, with counts on the host; rows_u has all units, with 0 for
  /// other parts.
  virtual std::vector<ForwardWeighted> split(int64_t num_parts);
  /// For a rank that has all units: gathers the tokens' rows, applies the units, and sums each
  /// token's outputs times the rows' weights: [T, D].
  virtual torch::Tensor forward_local(const torch::Tensor& x_TD, const TokenRows& rows);
  /// For key-value tables the number of values that are summed per row; else 0.
  virtual int64_t values_per_row() const { return 0; }
  /// For MLPs, into which a dense model's MLP can be copied, their shape; else nothing.
  virtual std::optional<MlpForm> mlp_form() const { return std::nullopt; }
  /// The rank of every unit of this bank.
  virtual const UnitPlacement& placement() const = 0;
};

}  // namespace shoal
