#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "moe/build_context.h"
#include "moe/exchange/exchange_options.h"
#include "moe/exchange/row_route.h"
#include "moe/experts/shared_expert.h"
#include "moe/experts/unit_bank.h"
#include "moe/losses/balance_losses.h"
#include "moe/moe_stage.h"
#include "moe/routing/capacity.h"
#include "moe/routing/router.h"
#include "runtime/module/linear.h"
#include "runtime/module/products.h"
#include "runtime/options/config.h"
#include "runtime/options/registry.h"
#include "runtime/random/step_context.h"

// B samples on this rank  R rows per sample  D width
namespace shoal {

/// Options of a MoeLayer (a section of the YAML recipe). A unit is what the router chooses from: an
/// expert or a memory unit (a learned table of keys and values).
struct MoeOptions {
  Choice<Router> router{"top_k"};
  LossChoices losses{std::in_place};  ///< default: no losses
  Capacity capacity;
  Choice<UnitBank> experts{"plain"};
  SharedExpert::Options shared;
  ExchangeOptions exchange;

  static constexpr auto fields() {
    return std::tuple{
        field("router", &MoeOptions::router, "which units a token is routed to"),
        field(
            "losses", &MoeOptions::losses,
            "balance losses, which even out the load of units; auto: the usual ones for the router",
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

/// A Mixture-of-Experts layer with expert parallelism: route -> apply_capacity -> dispatch ->
/// experts -> combine, plus the output of shared experts, computed while the first all-to-all is in
/// flight. A row is one token on its way to one unit. Rows are exchanged in `exchange.chunks`
/// parts: experts compute one while the next is in flight. Their number changes only rounding.
///
/// Parameters: `<path>.router.*`, `<path>.experts.*` for the routed units, `<path>.shared.*` for
/// the shared experts. Evaluation drops no tokens and uses neither noise nor losses. The output of
/// a token whose choices were all dropped is zero, or the shared experts' output alone. Padding
/// rows of samples that differ in length (StepContext::length_b) are removed before routing; they
/// get zeros and affect no other output. With one expert rank nothing is exchanged.
class MoeLayer : public MoeStage, public CountsProducts {
 public:
  /// `width`: D of the tokens; `path`: the layer's module path, also the key of its noise. Without
  /// a context.grid the layer has one expert rank and cannot run. `inits`: initial values of routed
  /// and shared experts in place of their defaults. Throws ConfigError.
  MoeLayer(const MoeOptions& options, int64_t width, const std::string& path,
           const BuildContext& context, const std::optional<MlpInits>& inits = {});
  /// Runs the layer; B may be 0. Collective over expert and world ranks, backward too.
  MoeOutput forward(const torch::Tensor& x_BRD, const StepContext& step);
  void after_step() override { router_->after_step(grid_->tensor_world()); }
  MoeStageInfo info() const override;
  /// Adds the matrix products of `rows` tokens, for FLOP counts. Dropped choices count too.
  void list_products(double rows, ProductList& list) const override;

  const MoeOptions& options() const { return options_; }
  const Router& router() const { return *router_; }
  const UnitBank& units() const { return *bank_; }

 private:
  /// Applies capacity to each chunk of tokens; in padded mode with the counts of all ranks.
  std::vector<TokenAssignments> assign_chunks(const Routing& routing, const TokenContext& context,
                                              const Capacity& capacity) const;
  /// Returns each token's output, [T, D], without an exchange.
  torch::Tensor run_local(const torch::Tensor& x_TD, const TokenAssignments& assignments);
  /// Returns each token's output, [T, D], with rows exchanged along `pending`'s routes.
  torch::Tensor run_exchanged(const torch::Tensor& x_TD,
                              const std::vector<TokenAssignments>& chunks, PendingRoutes pending);
  /// Numbers of chunks into which rows are cut, by tokens and by units. One of the two is 1.
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
