#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/losses/balance_loss.h"
#include "moe/routing/router.h"
#include "moe/routing/routing.h"
#include "parallel/comm/communicator.h"
#include "runtime/options/registry.h"

namespace shoal {

/// Balance (auxiliary) losses of a MoE layer in the YAML recipe; unset: `auto`, the usual ones.
using LossChoices = std::optional<std::vector<Choice<BalanceLoss>>>;

/// Returns the losses that `auto` selects for this router. `scores_only`: true for a layer that
/// computes every token by all units (experts), weighted by the token's scores.
std::vector<Choice<BalanceLoss>> usual_losses(const Router& router, bool scores_only);
/// True if a loss has no name: the recipe takes it from an environment variable that is not set.
bool has_unnamed(const LossChoices& losses);

/// The balance losses of one MoE layer.
class BalanceLosses {
 public:
  BalanceLosses() = default;
  explicit BalanceLosses(const std::vector<Choice<BalanceLoss>>& losses);
  /// Reports, as `losses[i]`, losses that do not work with the router and losses given twice.
  void check(const Router& router, std::string_view router_name, Problems& problems) const;
  /// True if a loss of positive weight evens out the loads of units.
  bool evens_out_loads() const;
  /// Returns the names for metrics. If two losses have the same name, their scopes are appended.
  const std::vector<std::string>& names() const { return names_; }

  struct Sums {
    /// Each loss, unweighted, as a sum over its scope's sets of tokens (a sample, a routing group,
    /// or a micro-step over all ranks) of the set's loss times its number of items on this rank.
    /// Items are tokens, or samples if samples differ in length.
    std::vector<torch::Tensor> values;
    torch::Tensor auxiliary_loss;  ///< this rank's share of the step's weighted losses
  };
  /// Evaluates the losses (at least one). Collective over `world` if a loss has scope `global`.
  Sums evaluate(const Routing& routing, const TokenContext& context, Communicator& world) const;

 private:
  std::vector<std::shared_ptr<BalanceLoss>> losses_;
  std::vector<std::string> names_;
};

}  // namespace shoal
