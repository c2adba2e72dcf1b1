#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "moe/losses/balance_loss.h"
#include "moe/routing/router.h"
#include "moe/routing/routing.h"
#include "parallel/comm/communicator.h"
#include "runtime/recipe/registry.h"

namespace shoal {

/// The balance losses of one layer.
class BalanceLosses {
 public:
  BalanceLosses() = default;
  explicit BalanceLosses(const std::vector<Choice<BalanceLoss>>& losses);
  /// Reports losses that cannot go with the router, and those given twice, as `losses[i]`.
  void check(const Router& router, std::string_view router_name, Problems& problems) const;
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
