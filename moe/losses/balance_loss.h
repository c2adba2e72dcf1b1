#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/routing/router.h"
#include "moe/routing/routing.h"
#include "parallel/comm/communicator.h"
#include "runtime/options/registry.h"

// T tokens on this rank  U units  S scope instances on this rank
namespace shoal {

/// The sets of tokens over which a balance loss is computed: each sample, each routing group
/// (train.group samples) or all tokens of a micro-step (one forward pass) over all ranks. A set is
/// called an instance; this object holds this rank's instances.
class Scope {
 public:
  /// `world`: all ranks; used by kGlobal only. kGlobal has one instance, which every rank holds.
  Scope(ScopeKind kind, const TokenContext& context, Communicator& world);
  /// Sums over each instance's tokens: [T, U] -> [S, U], differentiable. kGlobal: collective.
  torch::Tensor sum(const torch::Tensor& value_TU) const;
  /// Tokens per instance, on all ranks: float64 [S]. kGlobal: collective if sample lengths differ.
  torch::Tensor tokens_S() const;
  /// Multiplies each instance's value by the instance's number of items on this rank and sums the
  /// products: [S] -> scalar, differentiable. Items are tokens; if samples differ in length, items
  /// are samples. BalanceLosses::evaluate divides by the optimizer step's items over all ranks.
  torch::Tensor weighted_sum(const torch::Tensor& value_S) const;

 private:
  ScopeKind kind_;
  Communicator& world_;
  std::vector<int64_t> length_S_, item_S_;  ///< tokens and items (see weighted_sum) on this rank
  c10::Device device_;
  std::optional<int64_t> tokens_in_micro_;  ///< tokens of the micro-step over all ranks, if known
};

/// Options that every balance loss has.
struct BalanceLossOptions {
  double weight = 0.005;
  ScopeKind scope = ScopeKind::kGroup;

  static constexpr auto fields() {
    return std::tuple{
        field("weight", &BalanceLossOptions::weight, "factor in the training loss", at_least(0)),
        field("scope", &BalanceLossOptions::scope, "tokens over which loads are balanced")};
  }
};

/// An auxiliary loss that favours an even use of units (experts): a function of a router's output
/// before capacity, masked tokens included. Registered for `losses` in a YAML recipe.
class BalanceLoss {
 public:
  struct Context {};
  static constexpr std::string_view kNameKey = "name";       ///< recipe key that names the choice
  static constexpr std::string_view kNoun = "balance loss";  ///< in error messages

  /// `name`: a string literal, the name in metrics. It is the registered name, with a suffix if an
  /// option changes the formula (`switch_first_choice`).
  BalanceLoss(std::string_view name, const BalanceLossOptions& options)
      : name_(name), options_(options) {}
  virtual ~BalanceLoss() = default;
  /// Returns the loss of each instance of `scope`, [S], not multiplied by weight(), differentiable.
  virtual torch::Tensor value_S(const Routing& routing, const Scope& scope) const = 0;
  /// True if a low value means equal loads; false if the loss looks at each token's scores alone.
  virtual bool evens_out_loads() const = 0;
  /// Returns why this loss does not work with the router; empty if it does.
  virtual std::string objection(const Router& /*router*/) const { return ""; }
  std::string_view name() const { return name_; }
  double weight() const { return options_.weight; }
  ScopeKind scope() const { return options_.scope; }

 private:
  std::string_view name_;
  BalanceLossOptions options_;
};

/// Returns (standard deviation / mean)² of each row, with population variance: [S, U] -> [S],
/// differentiable, also at perfect balance. Values below float32's least normal number are clamped
/// to it, without gradient. float32 and float64; TORCH_CHECK on rows without units.
torch::Tensor squared_variation(const torch::Tensor& value_SU);

}  // namespace shoal
