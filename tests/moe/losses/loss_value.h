#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <tuple>

#include "moe/losses/balance_loss.h"
#include "parallel/comm/communicator.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/registry.h"

// T tokens  S scope instances
namespace shoal::testing {

struct LossSection {
  Choice<BalanceLoss> loss;
  static constexpr auto fields() {
    return std::tuple{field("loss", &LossSection::loss, "the loss")};
  }
};

/// A balance loss by its name and, if wanted, more keys: "switch, counts: first_choice".
inline std::shared_ptr<BalanceLoss> make_loss(const std::string& text) {
  const auto section =
      config::load_options_text<LossSection>("loss: {name: " + text + "}", "test").options;
  return Registry<BalanceLoss>::create(section.loss, {});
}

/// A training step of samples 0, 1, 2, ... that are all the samples there are.
inline StepContext loss_step(int64_t num_samples, int64_t samples_per_group) {
  StepContext step;
  step.training = true;
  step.sample_b = torch::arange(num_samples);
  step.samples_per_group = samples_per_group;
  step.samples_in_step = step.samples_in_micro = num_samples;
  return step;
}

/// The loss, [1], of all tokens as one group.
inline torch::Tensor value_of(const std::string& loss, const Routing& routing) {
  const auto self = make_self_communicator();
  const StepContext step = loss_step(routing.num_tokens(), routing.num_tokens());
  const Scope scope(ScopeKind::kGroup, make_token_context(step, 0, 1), *self);
  return make_loss(loss)->value_S(routing, scope);
}

}  // namespace shoal::testing
