#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/hspmn/token_gate.h"
#include "tests/support/ranks.h"
#include "tests/support/some_batch.h"

// b sequences  S tokens
namespace shoal::testing {

/// A gate of width 1 and weight 1 and no anchors: its inputs are its logits.
class TokenGateTest : public ::testing::Test {
 protected:
  using Change = std::function<void(GateOptions&)>;

  TokenGate make(
      const Change& change = [](GateOptions&) {}, int64_t context = 64) {
    GateOptions options;
    options.anchor_every = 0;
    options.explore_fraction = 0;
    change(options);
    const BuildContext build{&grid_, torch::TensorOptions().dtype(torch::kFloat64)};
    TokenGate gate(options, 1, context, "blocks.0.gate", build);
    const torch::NoGradGuard no_grad;
    for (const Parameter& parameter : parameters_of(*gate)) {
      parameter.tensor.fill_(parameter.name == "weight" ? 1.0 : 0.0);
    }
    for (const Parameter& buffer : buffers_of(*gate)) buffer.tensor.zero_();
    return gate;
  }

  struct Pass {
    bool training = false;
    int64_t step = 1000;
    int64_t first = 0;  ///< position of the first token
    GateState state = {};
    torch::Tensor is_token = {};
  };
  OpenTokens open(TokenGate& gate, const torch::Tensor& logit_bS, const Pass& pass) {
    const torch::Tensor u = logit_bS.unsqueeze(2);
    const torch::Tensor position =
        (torch::arange(logit_bS.size(1), torch::kInt64) + pass.first).expand_as(logit_bS);
    StepContext step = some_step(logit_bS.size(0), pass.training);
    step.step = pass.step;
    step.token_bS = position * 3 % 7;
    return gate->open({u, position, pass.is_token, step, pass.state});
  }
  OpenTokens open(TokenGate& gate, const torch::Tensor& logit_bS) {
    return open(gate, logit_bS, Pass{});
  }

  std::vector<int64_t> places(const torch::Tensor& is_open_bS) {
    const torch::Tensor place = is_open_bS.flatten().nonzero().flatten().contiguous();
    return {place.const_data_ptr<int64_t>(), place.const_data_ptr<int64_t>() + place.numel()};
  }
  void set(TokenGate& gate, const std::string& name, double value) {
    for (const Parameter& buffer : buffers_of(*gate)) {
      if (buffer.name == name) buffer.tensor.fill_(value);
    }
  }

 private:
  RankGrid grid_ = self_grid();
};

}  // namespace shoal::testing
