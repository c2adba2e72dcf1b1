#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moe/routing/routing.h"
#include "parallel/comm/communicator.h"
#include "runtime/module/module.h"
#include "runtime/module/sparse_place.h"
#include "runtime/options/registry.h"

// T tokens  D width  U units  K choices per token
namespace shoal {

struct Capacity;

/// The tokens over which a balance loss (auxiliary loss that evens out the experts' loads) is
/// computed, before its values are averaged. No scope depends on the number of ranks.
enum class ScopeKind {
  kSequence,  ///< one sample
  kGroup,     ///< one routing group: train.group samples (recipe key), whole on one rank
  kGlobal,    ///< all ranks' samples of one micro-step; depends on train.accumulate
};

template <>
inline constexpr std::array kEnumWords<ScopeKind>{"sequence", "group", "global"};

/// A balance loss that goes with a router by default (recipe: `losses: auto`).
struct UsualLoss {
  std::string_view name;  ///< registered name of the loss
  double weight = 0.0;    ///< factor in the training loss
  ScopeKind scope = ScopeKind::kGroup;
};

/// Decides which units (experts) each token is routed to. Registered for a YAML recipe's `router`.
///
/// Computes in float32, in float64 under `train.precision: float64`. Results do not depend on
/// ranks: noise is keyed by global token ids, tokens are only compared within train.group samples.
class Router : public ModuleBase, public StaysDense {
 public:
  /// The layer that a router is built for.
  struct Context {
    int64_t width = 0;                    ///< D, of the tokens
    int64_t num_units = 0;                ///< U, over all ranks
    torch::TensorOptions tensor_options;  ///< for the router's own parameters
    std::string layer = {};  ///< module path of the MoE layer; empty: built for checks, never run
  };
  static constexpr std::string_view kNameKey = "name";  ///< recipe key that names the choice
  static constexpr std::string_view kNoun = "router";   ///< in error messages

  /// `k`: units per token. In expert choice (units choose tokens) the mean if `factor` is 1.
  Router(int64_t k, const Context& context) : k_(k), num_units_(context.num_units) {}

  /// Chooses units for this rank's T tokens: returns units and combine weights [T, K], and scores
  /// and logits [T, U] for balance losses. `context`: the tokens' samples, groups and noise keys.
  /// Adds noise only while training. Not collective.
  virtual Routing route(const torch::Tensor& x_TD, const TokenContext& context) = 0;
  /// Updates state (a bias) after each optimizer step that was not skipped. Collective.
  virtual void after_step(Communicator& /*world*/) {}

  int64_t units_per_token() const { return k_; }
  /// Returns the mean number of units per token: k; in expert choice k times `factor`, at most U.
  virtual double routed_per_token() const { return static_cast<double>(k_); }
  /// Returns int64 [T]: the unit of each token's best choice, -1 if it has none.
  torch::Tensor first_units(const Routing& routing) const;
  /// True if noise is added to logits while training.
  virtual bool has_noise() const { return false; }
  /// True if a token's scores decide its units, so that a balance loss can change them.
  virtual bool takes_balance_losses() const { return true; }
  /// True if all tokens may come to choose the same units unless a balance loss prevents it.
  virtual bool needs_balance_loss() const { return takes_balance_losses(); }
  /// Returns the balance losses that the recipe's `losses: auto` selects; default: none.
  /// `scores_only`: for a layer that computes every token by all units, weighted by its scores.
  virtual std::vector<UsualLoss> usual_losses(bool /*scores_only*/) const { return {}; }
  /// True if a token's weights sum to 1 unless some of its rows are dropped.
  virtual bool weights_sum_to_one() const { return false; }
  /// True if units take a fixed number of tokens, so that capacity does not apply.
  virtual bool chooses_per_unit() const { return false; }
  /// True if a token's units and weights are independent of later tokens of its sample.
  virtual bool is_causal() const { return true; }
  /// True if in evaluation a token's units depend on other samples: on those of its routing group,
  /// or on how many precede its own in the data.
  virtual bool depends_on_other_samples() const { return false; }
  /// Returns what makes is_causal() true, for messages: "drop and eval_drop 0"; default: "".
  virtual std::string causal_hint() const { return ""; }
  /// True if vocabulary ids (StepContext::token_bS) decide the units.
  virtual bool needs_token_ids() const { return false; }
  /// True if run.seed and the layer's path determine which tokens a unit gets: units trained with
  /// one seed and path must then not be used with others.
  virtual bool assigns_by_seed() const { return false; }
  /// Returns a warning to users, a sentence without its full stop; default: "".
  virtual std::string note() const { return ""; }
  // The three checks add mistakes to `problems`; `path` is the recipe path of the router's section.
  /// Reports options that do not fit the number of units.
  virtual void check(const std::string& path, Problems& problems) const;
  /// Reports options without effect if all units compute each token, weighted by its scores.
  virtual void check_scores_only(const std::string& path, Problems& problems) const;
  /// Reports options without effect in a layer without capacity, which drops no tokens.
  virtual void check_without_capacity(const std::string&, Problems&) const {}

 protected:
  int64_t num_units() const { return num_units_; }

 private:
  int64_t k_, num_units_;
};

/// Checks a MoE layer of a causal model: adds a problem at `router.name` or `capacity.order` if one
/// makes a token depend on later tokens of its sample. `name`: the router's name, for messages.
void check_causality(const Router& router, std::string_view name, const Capacity& capacity,
                     Problems& problems);

}  // namespace shoal
