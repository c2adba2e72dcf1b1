#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "moe/capacity.h"
#include "moe/routing.h"
#include "parallel/communicator.h"
#include "runtime/module.h"
#include "runtime/registry.h"

// T tokens  D width  U units  K choices per token
namespace shoal {

/// Decides which units each token visits. Registered under a MoE section's `router`.
///
/// Computes in float32, in float64 under `train.precision: float64`; calls no collective in
/// `route`, and depends on ranks in nothing: noise is keyed by global token ids, and what compares
/// tokens does so inside a routing group.
class Router : public ModuleBase {
 public:
  struct Context {
    int64_t width = 0;
    int64_t num_units = 0;
    torch::TensorOptions tensor_options;  ///< of the router's own parameters
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "router";

  /// Where the tokens go, T = context.num_tokens(). Noise only while training.
  virtual Routing route(const torch::Tensor& x_TD, const TokenContext& context) = 0;
  /// What survives capacity; routers that choose per unit bring their own.
  virtual Assignments assign(const Routing& routing, const Capacity& capacity);
  /// After an optimizer step that was taken. Collective.
  virtual void after_step(Communicator& world) { (void)world; }

  /// Units a token visits at most.
  virtual int64_t units_per_token() const = 0;
  /// Standard deviation of the noise on the logits while training; 0 without.
  virtual double noise_std() const = 0;
  /// Reports what does not go with the number of units. `path` leads to the router's section.
  virtual void check(const std::string& path, Problems& problems) const = 0;
};

}  // namespace shoal
