#include "runtime/optim/optimizer.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/lamb.h"
#include "runtime/optim/sgd.h"
#include "runtime/random/random.h"
#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::worst_of;

torch::Tensor noise(at::IntArrayRef sizes, at::ScalarType dtype, uint64_t step = 0) {
  const torch::Tensor values = torch::empty(sizes, dtype);
  fill_normal(values, {.seed = 11, .layer = static_cast<uint64_t>(values.numel()), .step = step});
  return values;
}

/// A matrix, a bias, a stack of three expert matrices, a stack of expert biases, and an empty stack
/// of a rank without experts.
std::vector<Parameter> make_parameters(at::ScalarType dtype) {
  std::vector<Parameter> parameters = {
      {"fc.weight", noise({131, 97}, dtype), 0, {}, {}},
      {"fc.bias", noise({131}, dtype), 0, {}, {}},
      {"experts.*.weight", noise({3, 61, 30}, dtype), 1, {4, 1, 7}, {}},
      {"experts.*.bias", noise({3, 30}, dtype), 1, {4, 1, 7}, {}},
      {"absent.*.weight", torch::empty({0, 4, 4}, dtype), 1, {}, {}},
      {"tau", noise({1, 1}, dtype), 0, {}, {}},
  };
  for (Parameter& parameter : parameters) parameter.tensor.requires_grad_();
  return parameters;
}

void set_gradients(const std::vector<Parameter>& parameters, uint64_t step) {
  for (const Parameter& parameter : parameters) {
    const torch::Tensor& tensor = parameter.tensor;
    tensor.mutable_grad() = noise(tensor.sizes(), tensor.scalar_type(), step + 1).mul_(0.1);
  }
}

struct Collector : StateVisitor {
  std::map<std::string, torch::Tensor*> tensors;
  std::map<std::string, StateTensor> entries;
  std::map<std::string, int64_t*> integers;
  void tensor(const StateTensor& entry) override {
    EXPECT_TRUE(tensors.emplace(entry.name, &entry.value).second) << entry.name;
    entries.emplace(entry.name, entry);
  }
  void integer(const std::string& name, int64_t& value) override { integers[name] = &value; }
  void real(const std::string&, double&) override {}
  void text(const std::string&, std::string&) override {}
};

struct Case {
  std::string name;
  Choice<Optimizer> choice;
};

std::vector<Case> cases() {
  Sgd::Options sgd, nesterov;
  sgd.lr = nesterov.lr = 0.1;
  nesterov.momentum = 0.9;
  nesterov.nesterov = true;
  nesterov.weight_decay = 0.01;
  nesterov.no_decay = {"tau"};
  AdamW::Options adamw;
  adamw.lr = 0.01;
  adamw.weight_decay = 0.1;
  adamw.no_decay = {"tau"};
  AdamW::Options by_age = adamw;
  by_age.entry_steps = true;
  Lamb::Options lamb, adapting;
  lamb.lr = adapting.lr = 0.01;
  lamb.weight_decay = 0.1;
  lamb.no_decay = {"tau"};
  adapting.always_adapt = adapting.trust_clip = true;
  adapting.betas = {0.8, 0.95};
  return {{"sgd", {"sgd", sgd}},       {"nesterov", {"sgd", nesterov}},
          {"adamw", {"adamw", adamw}}, {"adamw_by_age", {"adamw", by_age}},
          {"lamb", {"lamb", lamb}},    {"lamb_adapting", {"lamb", adapting}}};
}

/// The formulas of the headers, one matrix after the other, in plain tensor operations.
class Reference {
 public:
  explicit Reference(const Case& which) : which_(which) {}

  void step(torch::Tensor w, const torch::Tensor& g, bool decays, const std::string& key) {
    torch::Tensor& m = states_[key + ".m"];
    torch::Tensor& v = states_[key + ".v"];
    const int64_t t = ++counts_[key];
    if (t == 1) m = torch::zeros_like(w), v = torch::zeros_like(w);
    if (which_.choice.name() == "sgd") {
      const auto& options = which_.choice.options<Sgd>();
      const torch::Tensor slope = g + (decays ? options.weight_decay : 0.0) * w;
      m = options.momentum * m + slope;
      w -= options.lr * (options.nesterov ? slope + options.momentum * m : m);
      return;
    }
    const bool is_lamb = which_.choice.name() == "lamb";
    const AdamOptions& options =
        is_lamb ? static_cast<const AdamOptions&>(which_.choice.options<Lamb>())
                : which_.choice.options<AdamW>();
    m = options.betas[0] * m + (1 - options.betas[0]) * g;
    v = options.betas[1] * v + (1 - options.betas[1]) * g * g;
    const double decay = decays ? options.weight_decay : 0.0;
    const torch::Tensor mean = m / (1 - std::pow(options.betas[0], t));
    const torch::Tensor root = (v / (1 - std::pow(options.betas[1], t))).sqrt();
    const torch::Tensor u = mean / (root + options.eps) + decay * w;
    w -= options.lr * (is_lamb ? trust(w, u, decay != 0.0) : 1.0) * u;
  }

 private:
  double trust(const torch::Tensor& w, const torch::Tensor& u, bool decays) const {
    const auto& options = which_.choice.options<Lamb>();
    if (!decays && !options.always_adapt) return 1.0;
    const double ratio = w.norm().item<double>() / u.norm().item<double>();
    return options.trust_clip ? std::min(ratio, 1.0) : ratio;
  }

  const Case& which_;
  std::map<std::string, torch::Tensor> states_;
  std::map<std::string, int64_t> counts_;
};

bool has_decay(const Parameter& parameter) {
  return parameter.name == "fc.weight" || parameter.name == "experts.*.weight";
}

void step_reference(Reference& reference, const Parameter& parameter, const torch::Tensor& w,
                    const torch::Tensor& g) {
  const bool decays = has_decay(parameter);
  if (!parameter.is_stacked()) return reference.step(w, g, decays, parameter.name);
  for (int64_t unit = 0; unit < w.size(0); ++unit) {
    reference.step(w[unit], g[unit], decays, parameter.name + std::to_string(unit));
  }
}

class EachOptimizer : public ::testing::TestWithParam<Case> {
 protected:
  std::shared_ptr<Optimizer> make(const std::vector<Parameter>& parameters) const {
    return Registry<Optimizer>::create(GetParam().choice, parameters);
  }
  /// Runs `steps` steps and returns the weights' largest difference to the reference, relative
  /// to each tensor's largest magnitude.
  double difference_to_reference(at::ScalarType dtype, uint64_t steps) const {
    const std::vector<Parameter> parameters = make_parameters(dtype);
    const auto optimizer = make(parameters);
    Reference reference(GetParam());
    std::vector<torch::Tensor> weights;
    for (const Parameter& p : parameters)
      weights.push_back(p.tensor.detach().to(at::kDouble, false, true));
    for (uint64_t step = 0; step < steps; ++step) {
      set_gradients(parameters, step);
      optimizer->step(optimizer->peak_learning_rate());
      for (size_t i = 0; i < parameters.size(); ++i) {
        step_reference(reference, parameters[i], weights[i],
                       parameters[i].tensor.grad().to(at::kDouble));
      }
    }
    double worst = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (weights[i].numel() == 0) continue;
      const torch::Tensor error = (parameters[i].tensor.detach() - weights[i]).abs().max();
      worst = worst_of(worst, error.item<double>() / weights[i].abs().max().item<double>());
    }
    return worst;
  }
};
INSTANTIATE_TEST_SUITE_P(Members, EachOptimizer, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(EachOptimizer, EqualsThePlainFormulasInDouble) {
  EXPECT_LT(difference_to_reference(at::kDouble, 5), 1e-14);
}

TEST_P(EachOptimizer, EqualsThePlainFormulasInFloatToRounding) {
  // Five steps of rounding errors of the order of 2^-24 in numbers below 1.
  EXPECT_LT(difference_to_reference(at::kFloat, 5), 2e-6);
}

TEST_P(EachOptimizer, ThreadsDoNotChangeABit) {
  const int threads = at::get_num_threads();
  std::vector<std::vector<Parameter>> results;
  for (const int count : {1, 3}) {
    at::set_num_threads(count);
    results.push_back(make_parameters(at::kFloat));
    results.back().push_back({"large", noise({300, 700}, at::kFloat).requires_grad_(), 0, {}, {}});
    const auto optimizer = make(results.back());
    for (uint64_t step = 0; step < 3; ++step) {
      set_gradients(results.back(), step);
      optimizer->step(0.01);
    }
  }
  at::set_num_threads(threads);
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(results[0][i].tensor.equal(results[1][i].tensor)) << results[0][i].name;
  }
}

TEST_P(EachOptimizer, ResumedEqualsUninterrupted) {
  const std::vector<Parameter> straight = make_parameters(at::kFloat);
  const std::vector<Parameter> resumed = make_parameters(at::kFloat);
  const auto first = make(straight);
  for (uint64_t step = 0; step < 3; ++step) {
    set_gradients(straight, step);
    first->step(0.01);
  }
  const auto second = make(resumed);
  Collector from, to;
  first->visit_state(from);
  second->visit_state(to);
  ASSERT_EQ(from.tensors.size(), to.tensors.size());
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < straight.size(); ++i) resumed[i].tensor.copy_(straight[i].tensor);
  for (auto& [name, value] : from.tensors) to.tensors.at(name)->copy_(*value);
  for (auto& [name, value] : from.integers) *to.integers.at(name) = *value;
  for (uint64_t step = 3; step < 6; ++step) {
    for (const auto& [parameters, optimizer] : {std::pair{straight, first}, {resumed, second}}) {
      set_gradients(parameters, step);
      optimizer->step(0.01);
    }
  }
  for (size_t i = 0; i < straight.size(); ++i) {
    EXPECT_TRUE(straight[i].tensor.equal(resumed[i].tensor)) << straight[i].name;
  }
}

TEST_P(EachOptimizer, AnExpertStepsAloneAsItDoesInAStack) {
  const std::vector<Parameter> together = make_parameters(at::kDouble);
  const auto all = make(together);
  set_gradients(together, 0);
  std::vector<Parameter> alone = make_parameters(at::kDouble);
  set_gradients(alone, 0);
  for (Parameter& parameter : alone) {
    if (parameter.name.rfind("experts", 0) != 0) continue;
    const torch::Tensor gradient = parameter.tensor.grad().slice(0, 1, 2).clone();
    parameter.tensor = parameter.tensor.detach().slice(0, 1, 2).clone().requires_grad_();
    parameter.tensor.mutable_grad() = gradient;
    parameter.unit_ids = {1};
  }
  const auto one = make(alone);
  all->step(0.01);
  one->step(0.01);
  for (size_t i : {2, 3}) {
    EXPECT_TRUE(together[i].tensor[1].equal(alone[i].tensor[0])) << alone[i].name;
  }
}

TEST_P(EachOptimizer, ListsItsStateUnderLogicalNames) {
  const std::vector<Parameter> parameters = make_parameters(at::kFloat);
  const auto optimizer = make(parameters);
  Collector state;
  optimizer->visit_state(state);
  EXPECT_EQ(state.integers.count("optimizer.steps"), 1u);
  const bool is_adam = GetParam().choice.name() != "sgd";
  const size_t adam_kinds = GetParam().name == "adamw_by_age" ? 3 : 2;
  const size_t kinds = is_adam ? adam_kinds : (GetParam().name == "nesterov" ? 1 : 0);
  EXPECT_EQ(state.entries.size(), kinds * parameters.size());
  if (!is_adam) return;
  const StateTensor& entry = state.entries.at("optimizer.v.experts.*.weight");
  EXPECT_TRUE(entry.is_stacked);
  EXPECT_EQ(entry.unit_ids, (std::vector<int64_t>{4, 1, 7}));
  EXPECT_FALSE(state.entries.at("optimizer.m.fc.bias").is_stacked);
  EXPECT_TRUE(state.entries.at("optimizer.m.absent.*.weight").is_stacked);
}

TEST_P(EachOptimizer, LeavesFrozenParametersAlone) {
  std::vector<Parameter> parameters = make_parameters(at::kFloat);
  parameters[0].tensor.requires_grad_(false);
  const torch::Tensor frozen = parameters[0].tensor.clone();
  const torch::Tensor trained = parameters[1].tensor.detach().clone();
  const auto optimizer = make(parameters);
  set_gradients(parameters, 0);
  optimizer->step(0.1);
  EXPECT_TRUE(parameters[0].tensor.equal(frozen));
  EXPECT_FALSE(parameters[1].tensor.equal(trained));
}

TEST_P(EachOptimizer, NamesAParameterWithoutGradient) {
  const std::vector<Parameter> parameters = make_parameters(at::kFloat);
  const auto optimizer = make(parameters);
  set_gradients(parameters, 0);
  parameters[1].tensor.mutable_grad() = torch::Tensor();
  try {
    optimizer->step(0.1);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("fc.bias"), std::string::npos);
  }
  EXPECT_EQ(optimizer->steps(), 0);
}

TEST(AdamW, SaysWhichStateCountsTheStepsOfEachWeight) {
  AdamW::Options options;
  EXPECT_TRUE(AdamW(options, {}).step_count_kinds().empty());
  options.entry_steps = true;
  EXPECT_EQ(AdamW(options, {}).step_count_kinds(), std::vector<std::string>{"t"});
}

/// How far the next steps of a weight go whose gradient is always 0.5, in units of the learning
/// rate, when all of its state but the optimizer's count of steps, 10^6, is zero.
std::vector<double> steps_of_a_regrown_weight(bool entry_steps) {
  AdamW::Options options;
  options.eps = 0;
  options.entry_steps = entry_steps;
  const torch::Tensor weight = torch::zeros({1}, torch::kFloat64).requires_grad_();
  AdamW optimizer(options, std::vector<Parameter>{{"w", weight, 0, {}, {}}});
  Collector state;
  optimizer.visit_state(state);
  *state.integers.at("optimizer.steps") = 999'999;
  std::vector<double> steps;
  for (int i = 0; i < 5; ++i) {
    weight.mutable_grad() = torch::full({1}, 0.5, torch::kFloat64);
    const double before = weight.item<double>();
    optimizer.step(1.0);
    steps.push_back(before - weight.item<double>());
  }
  return steps;
}

// With one count the averages of gradient and square are not corrected: after i steps they are
// (1 - .9^i) g and (1 - .999^i) g², so that the first step is .1 / sqrt(.001) = 3.162278.
TEST(AdamW, AWeightThatRegrowsTakesLongFirstStepsUnlessItsStepsAreItsOwn) {
  const std::vector<double> shared{3.162278, 4.249592, 4.950235, 5.441616, 5.797140};
  const std::vector<double> found = steps_of_a_regrown_weight(/*entry_steps=*/false);
  const std::vector<double> own = steps_of_a_regrown_weight(/*entry_steps=*/true);
  for (size_t i = 0; i < shared.size(); ++i) {
    EXPECT_NEAR(found[i], shared[i], 1e-6) << i;
    EXPECT_NEAR(own[i], 1.0, 1e-12) << i;
  }
}

// Of two weights one is reset after two steps, as sparse training does: it takes the steps of a
// new one, the other those of the fused kernel.
TEST(AdamW, CountsTheStepsOfEachWeightAlone) {
  const auto make = [](bool entry_steps, const torch::Tensor& weight) {
    AdamW::Options options;
    options.entry_steps = entry_steps;
    return AdamW(options, std::vector<Parameter>{{"w", weight, 0, {}, {}}});
  };
  const auto numbers = [](double a, double b) {
    return torch::tensor({a, b}, torch::kFloat64).requires_grad_();
  };
  const torch::Tensor aged = numbers(0.3, 0.3), fused = numbers(0.3, 0.3), young = numbers(0, 0);
  AdamW by_age = make(true, aged), plain = make(false, fused), later = make(true, young);
  const auto step = [](AdamW& optimizer, const torch::Tensor& weight, double gradient) {
    weight.mutable_grad() = torch::full({2}, gradient, torch::kFloat64);
    optimizer.step(0.01);
  };
  for (int i = 0; i < 5; ++i) {
    if (i == 2) {
      for (const char* kind : {"m", "v", "t"}) by_age.state_of(kind, "w")[0][0] = 0;
      torch::NoGradGuard no_grad;
      aged[0] = 0;
    }
    const double gradient = 0.1 * (i + 1) * (i % 2 == 0 ? 1 : -1);
    step(by_age, aged, gradient);
    step(plain, fused, gradient);
    if (i >= 2) step(later, young, gradient);
  }
  EXPECT_NEAR(aged[0].item<double>(), young[0].item<double>(), 1e-15);
  // The fused kernel takes 1 - .999^t as a difference, which loses three digits.
  EXPECT_NEAR(aged[1].item<double>(), fused[1].item<double>(), 1e-13);
}

TEST(Optimizer, RefusesANoDecayEntryThatFitsNothing) {
  AdamW::Options options;
  options.no_decay = {"temperature"};
  EXPECT_THROW(AdamW(options, make_parameters(at::kFloat)), ConfigError);
}

TEST(Optimizer, RefusesHalfPrecisionAndMixedTypes) {
  std::vector<Parameter> parameters = make_parameters(at::kFloat);
  parameters[1].tensor = noise({4}, at::kDouble).requires_grad_();
  EXPECT_THROW(AdamW({}, parameters), c10::Error);
  EXPECT_THROW(AdamW({}, make_parameters(at::kBFloat16)), c10::Error);
}

TEST(Optimizer, StateHasTheTypeOfItsParameter) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    AdamW optimizer({}, make_parameters(dtype));
    Collector state;
    optimizer.visit_state(state);
    for (const auto& [name, value] : state.tensors) EXPECT_EQ(value->scalar_type(), dtype) << name;
  }
}

TEST(Optimizer, OptionsNameWhatIsWrong) {
  struct Lines : Problems {
    std::vector<std::string> paths;
    void add(std::string_view path, std::string_view) override { paths.emplace_back(path); }
  } lines;
  AdamOptions adam;
  adam.betas = {0.9};
  adam.validate(lines);
  Sgd::Options sgd;
  sgd.nesterov = true;
  sgd.validate(lines);
  EXPECT_EQ(lines.paths, (std::vector<std::string>{"betas", "nesterov"}));
}

}  // namespace
}  // namespace shoal
