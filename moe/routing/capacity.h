#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <utility>

#include "moe/routing/routing.h"
#include "runtime/base/size_limits.h"
#include "runtime/options/config.h"

// T tokens  U units  K choices per token  A assignments  C capacity
namespace shoal {

enum class CapacityMode {
  kDropless,  ///< no limit
  kCapped,    ///< at most C rows a unit and routing group
  kPadded,    ///< exactly C rows a unit and routing group, filled up with empty rows
};

/// Which rows a full unit keeps. Ties keep the lower token.
enum class CapacityOrder {
  kSlotMajor,      ///< all first choices in token order, then all second choices, ...
  kBatchPriority,  ///< slot-major over tokens sorted by their highest score without bias
  kProbability,    ///< all choices pooled, highest score first
  kPosition,       ///< all choices pooled, in token order
};

/// How many rows a unit takes from one routing group (recipe section `capacity`).
struct Capacity {
  CapacityMode mode = CapacityMode::kDropless;
  double factor = 1.05;  ///< taken as the decimal number that the recipe shows
  int64_t min = 4;
  int64_t align = 1;
  CapacityOrder order = CapacityOrder::kSlotMajor;

  static constexpr auto fields() {
    return std::tuple{
        field("mode", &Capacity::mode, "what limits the rows a unit takes from a routing group"),
        // At the number of units every choice has room.
        field("factor", &Capacity::factor, "capacity over the even share of a unit",
              in_range(above(0), kMostUnits)),
        field("min", &Capacity::min, "least capacity", in_range(0, kMostCapacity), unit("rows")),
        field("align", &Capacity::align, "capacity is rounded up to a multiple of this",
              in_range(1, kMostCapacity), unit("rows")),
        field("order", &Capacity::order, "which rows keep their place in a full unit")};
  }
};

template <>
struct EnumNames<CapacityMode> {
  static constexpr std::array names{std::pair{CapacityMode::kDropless, "dropless"},
                                    std::pair{CapacityMode::kCapped, "capped"},
                                    std::pair{CapacityMode::kPadded, "padded"}};
};

template <>
struct EnumNames<CapacityOrder> {
  static constexpr std::array names{std::pair{CapacityOrder::kSlotMajor, "slot_major"},
                                    std::pair{CapacityOrder::kBatchPriority, "batch_priority"},
                                    std::pair{CapacityOrder::kProbability, "probability"},
                                    std::pair{CapacityOrder::kPosition, "position"}};
};

/// Whether a token's rows are kept or dropped independently of later tokens: dropless, by
/// `position`, or by `slot_major` with one choice per token.
bool is_causal(const Capacity& capacity, int64_t choices_per_token);

/// C = max(min, align(ceil(num_choices * factor / num_units))) for `num_choices` = tokens times
/// choices per token of one routing group. Exact: `factor` is the shortest decimal that reads back
/// as the same double; integer arithmetic, saturating at 2^62. TORCH_CHECK unless factor > 0, and
/// on a padded capacity that no memory holds.
/// Source: Riquelme et al. 2021 (V-MoE), section 2.3, here for each routing group.
int64_t unit_capacity(int64_t num_choices, int64_t num_units, const Capacity& capacity);

/// The rows to send: one entry for each choice that survives capacity, sorted by unit, then routing
/// group, then token, then choice. In padded mode each (unit, group) has exactly C entries, the
/// missing ones last, as padding. On a GPU, where sizes must not depend on values, padding that
/// belongs to no unit may follow the units' rows.
struct TokenAssignments {
  torch::Tensor token_A;   ///< int64; -1: padding row
  torch::Tensor choice_A;  ///< int64, token * K + choice; -1: padding row
  torch::Tensor weight_A;  ///< combine weights, differentiable; finite but unspecified on padding
  torch::Tensor rows_U;    ///< int64, entries of each unit, padding included
  int64_t num_tokens = 0;
  torch::Tensor num_kept;  ///< int64 scalar: entries that are not padding
  /// The rows of each of its units on each expert rank, where they are known without asking;
  /// else empty.
  std::vector<int64_t> rows_per_unit_E = {};
};

/// Applies capacity to every routing group on its own. Masked choices are left out, and a group's
/// capacity counts its unmasked tokens only. Deterministic. TORCH_CHECK on a unit that is not
/// there (on a GPU the kernel ends with an error), and on a padded capacity that no memory holds.
/// Copies nothing to the host.
TokenAssignments apply_capacity(const Routing& routing, const Capacity& capacity);

}  // namespace shoal
