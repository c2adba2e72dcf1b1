#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "moe/routing/router.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/moe/routing/make_step.h"
#include "tests/support/collected_problems.h"
#include "tests/support/gradient_check.h"

// T tokens  D width  U units
namespace shoal::testing {

/// A router as a recipe names it. Its weights are some numbers.
inline std::shared_ptr<Router> router_of(const std::string& recipe,
                                         const Router::Context& context) {
  std::shared_ptr<Router> router = Registry<Router>::create(router_choice(recipe), context);
  const torch::NoGradGuard no_grad;
  int64_t seed = 21;
  for (torch::Tensor& weight : router->parameters()) {
    weight.copy_(some_numbers(weight.sizes(), seed++));
  }
  for (torch::Tensor& buffer : router->buffers()) buffer.zero_();
  return router;
}

/// A router whose logits are its input: width = units, the weight is the identity.
inline std::shared_ptr<Router> identity_router(const std::string& recipe, int64_t num_units) {
  std::shared_ptr<Router> router = router_of(recipe, {num_units, num_units, torch::kFloat64});
  const torch::NoGradGuard no_grad;
  router->parameters()[0].copy_(torch::eye(num_units, torch::kFloat64));
  return router;
}

/// One token a sample, all of one routing group.
inline Routing route_all(Router& router, const torch::Tensor& x_TD, bool training = true) {
  const StepContext step = step_of(x_TD.size(0), std::max<int64_t>(1, x_TD.size(0)), training);
  return router.route(x_TD, make_token_context(step, 5, 1));
}

inline std::vector<std::string> problems_of(const std::string& recipe, int64_t num_units) {
  CollectedProblems problems;
  router_of(recipe, {6, num_units, torch::kFloat64})->check("router", problems);
  return problems.lines;
}

}  // namespace shoal::testing
