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

/// The balance losses of a layer in a recipe; without a value: `auto`, the router's usual ones.
using LossChoices = std::optional<std::vector<Choice<BalanceLoss>>>;

/// The losses that `auto` selects for this router. `scores_only`: as in Router::usual_losses.
std::vector<Choice<BalanceLoss>> usual_losses(const Router& router, bool scores_only);
/// True if the name of some loss is missing, because it needs an unset environment variable.
bool has_unnamed(const LossChoices& losses);

/// The balance losses of one layer.
class BalanceLosses {
 public:
  BalanceLosses() = default;
  explicit BalanceLosses(const std::vector<Choice<BalanceLoss>>& losses);
  /// Reports losses that do not work with the router, and duplicates, as `losses[i]`.
  void check(const Router& router, std::string_view router_name, Problems& problems) const;
  /// True if one of the losses does.
  bool evens_out_loads() const;
  /// Names in metrics; a repeated name is followed by its scope.
  const std::vector<std::string>& names() const { return names_; }

  struct Sums {
    std::vector<torch::Tensor> values;  ///< StatSums::losses
    torch::Tensor auxiliary_loss;       ///< MoeOutput's
  };
  /// Collective over `world` if a loss has the scope `global`. Requires at least one loss.
  Sums evaluate(const Routing& routing, const TokenContext& context, Communicator& world) const;

 private:
  std::vector<std::shared_ptr<BalanceLoss>> losses_;
  std::vector<std::string> names_;
};

}  // namespace shoal
