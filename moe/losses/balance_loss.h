#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/routing/router.h"
#include "moe/routing/routing.h"
#include "moe/routing/usual_loss.h"
#include "parallel/comm/communicator.h"
#include "runtime/options/registry.h"

// T tokens on this rank  U units  S scope instances on this rank
namespace shoal {

/// The tokens over which a loss is balanced: a scope's instances on this rank, and their sums.
class Scope {
 public:
  /// `world` is used by kGlobal only, where every rank holds the one instance.
  Scope(ScopeKind kind, const TokenContext& context, Communicator& world);
  int64_t num_instances() const { return static_cast<int64_t>(length_S_.size()); }
  /// [T, U] -> [S, U], differentiable. kGlobal: collective forward and backward.
  torch::Tensor sum(const torch::Tensor& value_TU) const;
  /// float64 [S]: tokens of each instance, over all ranks. kGlobal: collective if samples differ in
  /// length.
  torch::Tensor tokens_S() const;
  /// [S] -> scalar, differentiable: sum over instances, each times its items on this rank
  /// (TokenContext::items_per_sample of each sample).
  torch::Tensor total(const torch::Tensor& value_S) const;

 private:
  ScopeKind kind_;
  Communicator& world_;
  std::vector<int64_t> length_S_, item_S_;  ///< tokens and items on this rank
  c10::Device device_;
  std::optional<int64_t> tokens_in_micro_;  ///< tokens over all ranks, if known
};

/// Options that every balance loss has.
struct BalanceLossOptions {
  double weight = 0.005;
  ScopeKind scope = ScopeKind::kGroup;

  static constexpr auto fields() {
    return std::tuple{
        field("weight", &BalanceLossOptions::weight, "factor in the training loss", at_least(0)),
        field("scope", &BalanceLossOptions::scope, "tokens among which balance is sought")};
  }
};

/// A loss that favours an even use of units: a function of a Routing before capacity, masked tokens
/// included. Registered under a MoE section's `losses`.
class BalanceLoss {
 public:
  struct Context {};
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "balance loss";

  /// `name`, a string literal, appears in metrics: the registered name plus the variant.
  BalanceLoss(std::string_view name, const BalanceLossOptions& options)
      : name_(name), options_(options) {}
  virtual ~BalanceLoss() = default;
  /// The undivided, unweighted loss of each instance, [S], differentiable.
  virtual torch::Tensor value_S(const Routing& routing, const Scope& scope) const = 0;
  /// True if a low value means equal loads; false for losses of each token's own scores, which
  /// allow all tokens to choose the same units.
  virtual bool evens_out_loads() const = 0;
  /// Why this loss does not work with the router; empty if it does.
  virtual std::string objection(const Router& router) const { return (void)router, ""; }
  std::string_view name() const { return name_; }
  double weight() const { return options_.weight; }
  ScopeKind scope() const { return options_.scope; }

 private:
  std::string_view name_;
  BalanceLossOptions options_;
};

/// Squared coefficient of variation over the last dimension, with population variance: [S, U] ->
/// [S]. No root is taken, so the gradient is finite at perfect balance. Values below float32's
/// least normal number are clamped to it, without a gradient: a row that underflows is even.
/// float32 and float64; TORCH_CHECK on rows without units.
torch::Tensor squared_variation(const torch::Tensor& value_SU);

}  // namespace shoal
