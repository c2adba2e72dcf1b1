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

/// The balance losses of a layer in a recipe; none of the optional: `auto`, the router's usual
/// ones.
using LossChoices = std::optional<std::vector<Choice<BalanceLoss>>>;

/// What `auto` stands for with this router. `scores_only`: as Router::usual_losses.
std::vector<Choice<BalanceLoss>> usual_losses(const Router& router, bool scores_only);
/// Whether a loss is not known yet, since its name needs an unset environment variable.
bool has_unnamed(const LossChoices& losses);

/// The balance losses of one layer.
class BalanceLosses {
 public:
  BalanceLosses() = default;
  explicit BalanceLosses(const std::vector<Choice<BalanceLoss>>& losses);
  /// Reports losses that cannot go with the router, and those given twice, as `losses[i]`.
  void check(const Router& router, std::string_view router_name, Problems& problems) const;
  /// Whether one of them does.
  bool evens_out_loads() const;
  /// In metrics; a repeated name is followed by its scope.
  const std::vector<std::string>& names() const { return names_; }

  struct Sums {
    std::vector<torch::Tensor> values;  ///< StatSums::losses
    torch::Tensor auxiliary_loss;       ///< MoeOutput's
  };
  /// Collective over `world` where a loss has the scope `global`. At least one loss.
  Sums evaluate(const Routing& routing, const TokenContext& context, Communicator& world) const;

 private:
  std::vector<std::shared_ptr<BalanceLoss>> losses_;
  std::vector<std::string> names_;
};

}  // namespace shoal
