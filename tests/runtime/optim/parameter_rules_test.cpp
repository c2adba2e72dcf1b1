#include "runtime/optim/parameter_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/lamb.h"
#include "runtime/optim/sgd.h"
#include "tests/support/config_error.h"
#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::some_numbers;

TEST(Glob, StarsStandForAnyTextAndQuestionMarksForOneCharacter) {
  for (const auto& [text, pattern] : std::vector<std::pair<std::string, std::string>>{
           {"head.bias", "*.bias"},
           {"head.bias", "head.bias"},
           {"head.bias", "*"},
           {"head.bias", "h*d*b??s"},
           {"head.bias", "head.bias**"},
           {"a.experts.*.fc1.weight", "*.experts.*.fc1.*"},
           {"aab", "*ab"},
           {"ababac", "*abac"},
           {"", "*"},
           {"", ""}}) {
    EXPECT_TRUE(matches_glob(text, pattern)) << text << " " << pattern;
  }
  for (const auto& [text, pattern] :
       std::vector<std::pair<std::string, std::string>>{{"head.bias", "bias"},
                                                        {"head.bias", "head"},
                                                        {"head.bias", "head?"},
                                                        {"head.bias", "*.weight"},
                                                        {"head.bias", "*.bias?"},
                                                        {"ab", "?"},
                                                        {"", "?"},
                                                        {"a", ""}}) {
    EXPECT_FALSE(matches_glob(text, pattern)) << text << " " << pattern;
  }
}

/// A matrix, a vector and a stack of two matrices.
std::vector<Parameter> small_model() {
  std::vector<Parameter> parameters{
      {"stem.weight", some_numbers({5, 3}, 1), 0, {}, {}},
      {"stem.bias", some_numbers({5}, 2), 0, {}, {}},
      {"experts.*.weight", some_numbers({2, 3, 4}, 3), 1, {1, 6}, {}},
  };
  for (Parameter& parameter : parameters) parameter.tensor.requires_grad_();
  return parameters;
}

ParameterRule rule(const std::string& match) {
  ParameterRule result;
  result.match = match;
  return result;
}

TEST(ParameterRules, LaterRulesOverrideEarlierOnesKeyByKey) {
  ParameterRule all = rule("*"), stem = rule("stem.*"), bias = rule("*.bias");
  all.lr_scale = 0.5;
  all.freeze = true;
  stem.freeze = false;
  stem.weight_decay = 0.1;
  bias.weight_decay = 0.0;
  const auto model = small_model();
  const std::vector<ParameterRule> rules{all, stem, bias};
  const ParameterRule weight = settings_of(rules, model[0]), vector = settings_of(rules, model[1]),
                      experts = settings_of(rules, model[2]);
  EXPECT_EQ(weight.lr_scale, 0.5);
  EXPECT_EQ(weight.weight_decay, 0.1);
  EXPECT_EQ(weight.freeze, false);
  EXPECT_EQ(vector.weight_decay, 0.0);
  EXPECT_EQ(vector.freeze, false);
  EXPECT_EQ(experts.weight_decay, std::nullopt);
  EXPECT_EQ(experts.freeze, true);
  EXPECT_EQ(settings_of({stem, all}, model[0]).freeze, true);
}

TEST(ParameterRules, NamesEachRuleThatMatchesNothing) {
  AdamW::Options options;
  options.rules = {rule("head.*"), rule("*.bias"), rule("experts.1.weight")};
  EXPECT_THAT(testing::mistakes_of([&] { AdamW(options, small_model()); }),
              ElementsAre(HasSubstr("optimizer.rules[0].match: no parameter's name fits 'head.*'"),
                          HasSubstr("optimizer.rules[2].match: ")));
}

ParameterRule freezing(const std::string& match, bool freeze = true) {
  ParameterRule result = rule(match);
  result.freeze = freeze;
  return result;
}

std::vector<Parameter> named(const std::vector<std::string>& names) {
  std::vector<Parameter> list;
  for (const std::string& name : names) list.push_back({name, torch::zeros({1}), 0, {}, {}});
  return list;
}

TEST(ParameterRules, MayMatchBuffersToFreezeThem) {
  const auto parameters = named({"gate.weight"}), buffers = named({"gate.threshold"});
  EXPECT_NO_THROW(check_rules({freezing("gate.thr*", false)}, parameters, buffers));
  ParameterRule scaled = rule("gate.threshold");
  scaled.lr_scale = 0.5;
  EXPECT_THAT(testing::mistakes_of([&] { check_rules({scaled}, parameters, buffers); }),
              ElementsAre(HasSubstr("optimizer.rules[0].match: no parameter's name fits "
                                    "'gate.threshold'; buffers are not trained")));
}

TEST(ParameterRules, FreezeBuffersWithAllParametersOfTheirModule) {
  const auto parameters = named(
      {"a.router.weight", "a.router.noise", "a.experts.*.fc.weight", "ab.weight", "head.weight"});
  const auto buffers = named({"a.router.bias", "a.norm.running_mean", "ab.mean", "count"});
  const auto frozen = [&](const std::vector<ParameterRule>& rules) {
    std::vector<std::string> names;
    for (const Parameter& buffer : frozen_buffers(rules, parameters, buffers)) {
      names.push_back(buffer.name);
    }
    return names;
  };
  EXPECT_THAT(frozen({}), ElementsAre());
  EXPECT_THAT(frozen({freezing("*", false)}), ElementsAre());
  EXPECT_THAT(frozen({freezing("a.router.weight")}), ElementsAre());
  EXPECT_THAT(frozen({freezing("a.router.weight"), freezing("*.noise")}),
              ElementsAre("a.router.bias"));
  // A norm without parameters is of the module around it.
  EXPECT_THAT(frozen({freezing("a.*.weight"), freezing("*.noise")}),
              ElementsAre("a.router.bias", "a.norm.running_mean"));
  EXPECT_THAT(frozen({freezing("a.*"), freezing("*.bias", false)}),
              ElementsAre("a.norm.running_mean"));
  EXPECT_THAT(frozen({freezing("ab.*"), freezing("co?nt")}), ElementsAre("ab.mean", "count"));
}

TEST(ParameterRules, RefusesToFreezeEverything) {
  AdamW::Options options;
  options.rules = {rule("*")};
  options.rules[0].freeze = true;
  const auto model = small_model();
  freeze_parameters(options.rules, model);
  EXPECT_THROW(AdamW(options, model), ConfigError);
}

/// Options of each optimizer, with decay.
std::vector<Choice<Optimizer>> choices(const std::vector<ParameterRule>& rules,
                                       double weight_decay = 0.1) {
  Sgd::Options sgd;
  sgd.momentum = 0.9;
  AdamW::Options adamw;
  Lamb::Options lamb;
  for (OptimizerOptions* options :
       {static_cast<OptimizerOptions*>(&sgd), static_cast<OptimizerOptions*>(&adamw),
        static_cast<OptimizerOptions*>(&lamb)}) {
    options->rules = rules;
    options->weight_decay = weight_decay;
  }
  return {{"sgd", sgd}, {"adamw", adamw}, {"lamb", lamb}};
}

/// The weights after three steps at this rate.
std::vector<torch::Tensor> train(const Choice<Optimizer>& choice, double learning_rate) {
  const std::vector<Parameter> model = small_model();
  freeze_parameters(rules_of(choice), model);
  const auto optimizer = Registry<Optimizer>::create(choice, model);
  for (int64_t step = 0; step < 3; ++step) {
    for (const Parameter& parameter : model) {
      if (!parameter.tensor.requires_grad()) continue;
      parameter.tensor.mutable_grad() = some_numbers(parameter.tensor.sizes(), 10 + step);
    }
    optimizer->step(learning_rate);
  }
  std::vector<torch::Tensor> weights;
  for (const Parameter& parameter : model) weights.push_back(parameter.tensor.detach());
  return weights;
}

TEST(ParameterRules, ScaleTheLearningRateOfWhatTheyMatch) {
  ParameterRule half = rule("experts.*");
  half.lr_scale = 0.5;
  for (size_t i = 0; i < 3; ++i) {
    const Choice<Optimizer> plain = choices({})[i];
    const auto expected = train(plain, 0.01), slow = train(plain, 0.005);
    const auto actual = train(choices({half})[i], 0.01);
    EXPECT_TRUE(actual[0].equal(expected[0])) << plain.name();
    EXPECT_TRUE(actual[1].equal(expected[1])) << plain.name();
    EXPECT_TRUE(actual[2].equal(slow[2])) << plain.name();
    EXPECT_FALSE(slow[2].equal(expected[2])) << plain.name();
  }
}

TEST(ParameterRules, ReplaceTheWeightDecayOfWhatTheyMatch) {
  ParameterRule none = rule("experts.*");
  none.weight_decay = 0.0;
  for (size_t i = 0; i < 3; ++i) {
    const Choice<Optimizer> plain = choices({})[i];
    const auto expected = train(plain, 0.01), undecayed = train(choices({}, 0.0)[i], 0.01);
    const auto actual = train(choices({none})[i], 0.01);
    EXPECT_TRUE(actual[0].equal(expected[0])) << plain.name();
    EXPECT_TRUE(actual[2].equal(undecayed[2])) << plain.name();
    EXPECT_FALSE(undecayed[2].equal(expected[2])) << plain.name();
  }
}

TEST(ParameterRules, AVectorDecaysIfARuleSaysSo) {
  ParameterRule bias = rule("*.bias");
  bias.weight_decay = 0.5;
  Sgd::Options sgd;
  sgd.rules = {bias};
  const double learning_rate = 0.01;
  const std::vector<Parameter> model = small_model();
  const torch::Tensor before = model[1].tensor.detach().clone();
  Sgd optimizer(sgd, model);
  for (const Parameter& parameter : model) {
    parameter.tensor.mutable_grad() = torch::zeros_like(parameter.tensor);
  }
  optimizer.step(learning_rate);
  EXPECT_TRUE(model[1].tensor.detach().allclose(before * (1 - learning_rate * 0.5), 1e-15, 0.0));
}

TEST(ParameterRules, FrozenParametersKeepTheirBitsAndHaveNoState) {
  ParameterRule frozen = rule("stem.*");
  frozen.freeze = true;
  struct Names : StateVisitor {
    std::vector<std::string> tensors;
    void tensor(const StateTensor& entry) override { tensors.push_back(entry.name); }
    void integer(const std::string&, int64_t&) override {}
    void real(const std::string&, double&) override {}
    void text(const std::string&, std::string&) override {}
  };
  for (const Choice<Optimizer>& choice : choices({frozen})) {
    const auto start = small_model();
    const auto weights = train(choice, 0.01);
    EXPECT_TRUE(weights[0].equal(start[0].tensor)) << choice.name();
    EXPECT_TRUE(weights[1].equal(start[1].tensor)) << choice.name();
    EXPECT_FALSE(weights[2].equal(start[2].tensor)) << choice.name();
    const auto model = small_model();
    freeze_parameters(rules_of(choice), model);
    Names names;
    Registry<Optimizer>::create(choice, model)->visit_state(names);
    EXPECT_FALSE(names.tensors.empty());
    EXPECT_THAT(names.tensors, ::testing::Each(HasSubstr("experts."))) << choice.name();
  }
}

}  // namespace
}  // namespace shoal
