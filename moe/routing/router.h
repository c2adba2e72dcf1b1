#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moe/routing/routing.h"
#include "moe/routing/usual_loss.h"
#include "parallel/comm/communicator.h"
#include "runtime/module/module.h"
#include "runtime/module/sparse_place.h"
#include "runtime/options/registry.h"

// T tokens  D width  U units  K choices per token
namespace shoal {

struct Capacity;

/// Decides which units each token is routed to. Registered under a MoE section's `router`.
///
/// Computes in float32, in float64 under `train.precision: float64`; `route` calls no
/// collective and is independent of the rank layout: noise is keyed by global token ids, and tokens
/// are compared inside a routing group only.
class Router : public ModuleBase, public StaysDense {
 public:
  /// The layer that a router is built for.
  struct Context {
    int64_t width = 0;                    ///< D, of the tokens
    int64_t num_units = 0;                ///< U, over all ranks
    torch::TensorOptions tensor_options;  ///< of the router's own parameters
    std::string layer = {};               ///< the MoE layer's path; empty where nothing is run
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "router";

  /// `k`: units per token, at most or, where units choose tokens, on average.
  Router(int64_t k, const Context& context) : k_(k), num_units_(context.num_units) {}

  /// The units of each token, T = context.num_tokens(). Noise only while training.
  virtual Routing route(const torch::Tensor& x_TD, const TokenContext& context) = 0;
  /// After an optimizer step that was taken. Collective.
  virtual void after_step(Communicator& world) { (void)world; }

  int64_t units_per_token() const { return k_; }
  /// Units that take a token, on average over the tokens; other than k where units choose.
  virtual double routed_per_token() const { return static_cast<double>(k_); }
  /// int64 [T]: the unit of each token's best choice, -1 where it has none.
  torch::Tensor first_units(const Routing& routing) const;
  /// Whether logits have noise while training.
  virtual bool has_noise() const { return false; }
  /// Whether a token's scores decide where it goes, so that a balance loss can move it.
  virtual bool takes_balance_losses() const { return true; }
  /// Whether all tokens may come to choose the same units unless a balance loss prevents it.
  virtual bool needs_balance_loss() const { return takes_balance_losses(); }
  /// The balance losses of its paper, or those that its users take: what `losses: auto` stands for;
  /// default: none. `scores_only`: in a layer that weights all units by a token's scores and reads
  /// no choices, as for check_scores_only.
  virtual std::vector<UsualLoss> usual_losses(bool scores_only) const {
    (void)scores_only;
    return {};
  }
  /// Whether a token's weights sum to 1 as long as none of its rows is dropped.
  virtual bool weights_sum_to_one() const { return false; }
  /// Whether units take a fixed number of tokens, which leaves nothing to capacity.
  virtual bool chooses_per_unit() const { return false; }
  /// Whether a token's units and weights are independent of later tokens of its sample.
  virtual bool is_causal() const { return true; }
  /// The values of its keys that make is_causal() true where their defaults do not: "drop and
  /// eval_drop 0"; default: there are none.
  virtual std::string causal_hint() const { return ""; }
  /// Whether it routes by vocabulary ids (StepContext::token_bS).
  virtual bool needs_token_ids() const { return false; }
  /// Whether run.seed and the layer's path decide, for good, which tokens a unit gets: units that
  /// were trained with one seed and path are not to be used with others.
  virtual bool assigns_by_seed() const { return false; }
  /// A warning for the users of a run, as a sentence without its full stop; default: none.
  virtual std::string note() const { return ""; }
  /// Reports options that do not fit the number of units. `path` leads to the router's section.
  virtual void check(const std::string& path, Problems& problems) const;
  /// Reports options that a layer would ignore which weights all units by a token's scores,
  /// Routing::prob_TU, and reads no choices.
  virtual void check_scores_only(const std::string& path, Problems& problems) const;
  /// The same of a layer without capacity, which drops nothing.
  virtual void check_without_capacity(const std::string&, Problems&) const {}

 protected:
  int64_t num_units() const { return num_units_; }

 private:
  int64_t k_, num_units_;
};

/// Reports a router (under `router.name`) and a capacity (under `capacity.order`) that let a token
/// depend on later tokens of its sample, for the MoE layers of causal models. `name`: the router's.
void check_causality(const Router& router, std::string_view name, const Capacity& capacity,
                     Problems& problems);

}  // namespace shoal
