#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "moe/build_context.h"
#include "moe/exchange/dispatch.h"
#include "moe/experts/shared_expert.h"
#include "moe/experts/unit_bank.h"
#include "moe/losses/balance_losses.h"
#include "moe/moe_stage.h"
#include "moe/moe_stats.h"
#include "moe/routing/capacity.h"
#include "moe/routing/router.h"
#include "runtime/module/linear.h"
#include "runtime/module/products.h"
#include "runtime/options/config.h"
#include "runtime/options/registry.h"
#include "runtime/random/step_context.h"

// B samples on this rank  R rows per sample  D width
namespace shoal {

/// A recipe's options of a MoeLayer.
struct MoeOptions {
  Choice<Router> router{"top_k"};
  LossChoices losses{std::in_place};  ///< none
  Capacity capacity;
  Choice<UnitBank> experts{"plain"};
  SharedExpert::Options shared;
  ExchangeOptions exchange;

  static constexpr auto fields() {
    return std::tuple{
        field("router", &MoeOptions::router, "which units a token is routed to"),
        field("losses", &MoeOptions::losses,
              "balance losses, which even out the load of units; auto: those that are usual for "
              "the router",
              unset_word("auto"), keeps_evaluation()),
        field("capacity", &MoeOptions::capacity, "how many rows a unit takes", keeps_evaluation()),
        field("experts", &MoeOptions::experts, "the units"),
        field("shared", &MoeOptions::shared, "experts applied to every token"),
        field("exchange", &MoeOptions::exchange, "how rows are exchanged between ranks")};
  }
  /// Replaces `auto` losses by the router's usual ones.
  void resolve();
  void validate(Problems& problems) const;
};

/// A Mixture-of-Experts layer: route -> apply_capacity -> dispatch -> experts -> combine, plus the
/// shared experts' output, computed while the first all-to-all is in flight. Rows are exchanged in
/// `exchange.chunks` parts, one of which is computed while the next is in flight; that changes only
/// how sums over tokens are rounded.
///
/// Parameters: the router's under `<path>.router.*`, the bank's under `<path>.experts.*`, the
/// shared experts' under `<path>.shared.*`. Evaluation is dropless, without noise and without
/// losses. The output of a token whose choices were all dropped is zero, or the shared experts'
/// output alone. Padding (StepContext::length_b) is removed before routing; it gets zero and
/// affects no other output. With one expert rank nothing is exchanged.
class MoeLayer : public MoeStage, public CountsProducts {
 public:
  /// Builds the layer; without a context.grid it has one expert rank and cannot run. `inits`: first
  /// values of routed and shared experts, in place of their own. Throws ConfigError.
  MoeLayer(const MoeOptions& options, int64_t width, const std::string& path,
           const BuildContext& context, const std::optional<MlpInits>& inits = {});
  /// Runs the layer. Collective over the grid's expert and world ranks. B may be 0.
  MoeOutput forward(const torch::Tensor& x_BRD, const StepContext& step);
  void after_step() override;
  MoeStageInfo info() const override;
  /// Counts the rows of choices that are dropped, too.
  void list_products(double rows, ProductList& list) const override;

  const MoeOptions& options() const { return options_; }
  const Router& router() const { return *router_; }
  const UnitBank& units() const { return *bank_; }

 private:
  /// Assigns the rows of each chunk, in padded mode with the counts of all ranks.
  std::vector<TokenAssignments> assign_chunks(const Routing& routing, const TokenContext& context,
                                              const Capacity& capacity) const;
  /// True if nothing is exchanged: this rank has all units, and rows are not rounded.
  bool is_local() const;
  /// Sums the outputs of the chosen units and the shared experts by token, without an exchange.
  torch::Tensor run_local(const torch::Tensor& x_TD, const TokenAssignments& assignments);
  /// Sums the outputs by token where rows are exchanged.
  torch::Tensor run_exchanged(const torch::Tensor& x_TD,
                              const std::vector<TokenAssignments>& chunks, PendingRoutes pending);
  /// The numbers of chunks that rows are cut into, by routing groups of tokens or by units: at
  /// least one of the two is 1.
  struct Cuts {
    int64_t of_tokens, of_units;
  };
  Cuts cuts() const;
  /// Returns the number of units if they are memory units, else 0.
  int64_t num_memory_units() const;

  MoeOptions options_;
  int64_t width_;
  RankGrid* grid_;
  std::shared_ptr<UnitBank> bank_;
  std::shared_ptr<Router> router_;
  std::shared_ptr<SharedExpert> shared_;  ///< null if there is none
  BalanceLosses losses_;
};

}  // namespace shoal
