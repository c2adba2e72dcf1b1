#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>

#include "moe/routing/routing.h"
#include "runtime/base/size_limits.h"
#include "runtime/options/config.h"

// T tokens  U units  K choices per token  A assignments  C capacity
namespace shoal {

// A unit is an expert or a memory unit. A choice is one of the K units that a token is routed to;
// it becomes a row that the unit computes, unless capacity drops it. A routing group is a number of
// samples (recipe key train.group), all on one rank; tokens compete inside it only.

/// What limits the rows of a unit, for a capacity of C rows.
enum class CapacityMode {
  kDropless,  ///< no limit
  kCapped,    ///< at most C rows for each unit and routing group; the rest is dropped
  kPadded,    ///< exactly C rows for each unit and routing group; missing ones are padding
};

/// Which choices a full unit keeps; among ties those of lower tokens.
enum class CapacityOrder {
  kSlotMajor,      ///< all first choices in token order, then all second choices, ...
  kBatchPriority,  ///< like slot-major, but tokens sorted by their highest score (without bias)
  kProbability,    ///< all choices pooled, highest score first
  kPosition,       ///< all choices pooled, in token order
};

/// How many rows a unit takes from one routing group (YAML recipe section `capacity`).
struct Capacity {
  CapacityMode mode = CapacityMode::kDropless;
  double factor = 1.05;  ///< capacity factor; counts as the exact decimal number in the recipe
  int64_t min = 4;
  int64_t align = 1;
  CapacityOrder order = CapacityOrder::kSlotMajor;

  static constexpr auto fields() {
    return std::tuple{
        field("mode", &Capacity::mode, "limit on the rows a unit processes per routing group"),
        // With a factor equal to the number of units nothing can be dropped.
        field("factor", &Capacity::factor, "capacity divided by the even share of a unit",
              in_range(above(0), kMostUnits)),
        field("min", &Capacity::min, "minimum capacity", in_range(0, kMostCapacity), unit("rows")),
        field("align", &Capacity::align, "capacity is rounded up to a multiple of this",
              in_range(1, kMostCapacity), unit("rows")),
        field("order", &Capacity::order, "which rows keep their place in a full unit")};
  }
};

template <>
inline constexpr std::array kEnumWords<CapacityMode>{"dropless", "capped", "padded"};

template <>
inline constexpr std::array kEnumWords<CapacityOrder>{"slot_major", "batch_priority", "probability",
                                                      "position"};

/// True if later tokens do not decide whether a token's choices are kept: dropless, in the order
/// `position`, or in the order `slot_major` with one choice per token. Causal models need this.
bool is_causal(const Capacity& capacity, int64_t choices_per_token);

/// Returns the capacity in rows, C = max(min, align(ceil(num_choices * factor / num_units))), for a
/// routing group with `num_choices` = tokens times choices per token. Exact: integer arithmetic,
/// saturating at 2^62, with `factor` as the shortest decimal that parses to the same double.
/// TORCH_CHECK unless factor > 0, and on a padded capacity that does not fit in memory. Source:
/// Riquelme et al. 2021 (V-MoE), section 2.3, here for each routing group.
int64_t unit_capacity(int64_t num_choices, int64_t num_units, const Capacity& capacity);

/// The rows to send to units: one entry for each choice within capacity, sorted by unit, then
/// routing group, then token, then choice. In padded mode each (unit, group) has exactly C entries,
/// the last ones padding if choices are fewer. On a GPU, where sizes must not depend on values,
/// padding that belongs to no unit may follow at the end.
struct TokenAssignments {
  torch::Tensor token_A;   ///< int64; -1: padding row
  torch::Tensor choice_A;  ///< int64, token * K + choice; -1: padding row
  torch::Tensor weight_A;  ///< combine weights, differentiable; finite but unspecified on padding
  torch::Tensor rows_U;    ///< int64, entries of each unit, padding included
  int64_t num_tokens = 0;
  torch::Tensor num_kept;  ///< int64 scalar: entries that are not padding
  /// Number of rows that each expert rank sends to each unit, if known without communication: with
  /// padding it is the same for all units. Else empty.
  std::vector<int64_t> rows_per_unit_E = {};
};

/// Applies capacity to the router's choices, in every routing group separately. Masked choices
/// (unit -1) are left out, and a group's capacity counts its unmasked tokens only. Deterministic.
/// Copies nothing to the host. TORCH_CHECK on units out of range (on a GPU the kernel fails with an
/// error), and on a padded capacity that does not fit in memory.
TokenAssignments apply_capacity(const Routing& routing, const Capacity& capacity);

}  // namespace shoal
