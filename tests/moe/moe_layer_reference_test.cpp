#include <ATen/ops/log1p.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "moe/experts/expert_bank.h"
#include "moe/moe_layer.h"
#include "moe/routers/importance_score.h"
#include "moe/routers/top_k.h"
#include "runtime/random/random.h"
#include "runtime/random/random_stream.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/moe/small_layer.h"
#include "tests/support/gradient_check.h"
#include "tests/support/moe_layer_fixture.h"
#include "tests/support/reference_moe.h"

// B samples  R rows per sample  T = B R tokens  D width  U units
namespace shoal {
namespace {

using testing::kPath;
using testing::layer_cases;
using testing::layer_options;
using testing::LayerCase;
using testing::parameter_of;
using testing::ReferenceMoe;
using testing::some_numbers;
using testing::values;
using testing::worst_of;
using Choices = std::vector<std::vector<int64_t>>;

/// The forward pass that the layer and the reference make.
struct Pass {
  const MoeLayer& layer;
  torch::Tensor x_TD;
  StepContext step;
  int64_t rows_per_sample;

  int64_t num_tokens() const { return x_TD.size(0); }
  int64_t num_units() const { return layer.info().num_units; }
  int64_t tokens_per_group() const { return step.samples_per_group * rows_per_sample; }
  torch::Tensor logits_TU() const { return x_TD.matmul(parameter_of(layer, "router.weight")); }
};

/// Sets up how the reference routes; returns the noise on its logits, [T, U].
using Describe = std::function<torch::Tensor(ReferenceMoe&, const Pass&)>;

torch::Tensor no_noise(const Pass& pass) {
  return torch::zeros({pass.num_tokens(), pass.num_units()}, torch::kFloat64);
}

torch::Tensor unit_noise(const Pass& pass) {
  const Stream stream{pass.step.seed, Purpose::kRouterNoise, hash_name(kPath),
                      static_cast<uint64_t>(pass.step.step)};
  return normal_rows(stream, torch::arange(pass.num_tokens()), pass.num_units(), torch::kFloat64);
}

/// Describes top-k softmax routers, from their options.
torch::Tensor describe_top_k(ReferenceMoe& reference, const Pass& pass) {
  const Choice<Router>& router = pass.layer.options().router;
  ScoreOptions top_k;
  if (router.name() == "importance_score") {
    const auto& importance = router.options<ImportanceScoreRouter>();
    top_k = importance.top_k;
    reference.drop_percent = std::lround(importance.drop * 100);
  } else {
    top_k = router.options<TopKRouter>();
  }
  reference.k = top_k.k;
  reference.normalise = static_cast<ReferenceMoe::Normalise>(top_k.weights.normalise);
  reference.renorm_after_drop = top_k.weights.renorm_after_drop;
  reference.scale = top_k.weights.scale;
  return top_k.noise == RouterNoise::kNone
             ? no_noise(pass)
             : unit_noise(pass) / static_cast<double>(pass.num_units());
}

/// The reference with the layer's weights and capacity.
ReferenceMoe reference_of(const Pass& pass) {
  const MoeLayer& layer = pass.layer;
  ReferenceMoe reference;
  reference.router_DU = parameter_of(layer, "router.weight");
  if (!reference.router_DU.defined()) {
    reference.router_DU = torch::zeros({pass.x_TD.size(1), pass.num_units()}, torch::kFloat64);
  }
  reference.fc1_weight = parameter_of(layer, "experts.*.fc1.weight");
  reference.fc1_bias = parameter_of(layer, "experts.*.fc1.bias");
  reference.fc2_weight = parameter_of(layer, "experts.*.fc2.weight");
  reference.fc2_bias = parameter_of(layer, "experts.*.fc2.bias");
  const Capacity& capacity = layer.options().capacity;
  if (capacity.mode == CapacityMode::kDropless) return reference;
  reference.capacity_percent = std::lround(capacity.factor * 100);
  reference.capacity_min = capacity.min;
  reference.capacity_align = capacity.align;
  reference.order = static_cast<ReferenceMoe::Order>(capacity.order);
  return reference;
}

/// Weights as at the start of training, those of learned noise away from their zeros.
void fill(const std::vector<Parameter>& parameters) {
  initialise(parameters, 9);
  const torch::NoGradGuard no_grad;
  for (const Parameter& parameter : parameters) {
    if (!parameter.name.ends_with("noise_weight")) continue;
    torch::Tensor weight = parameter.tensor;
    weight.copy_(some_numbers(weight.sizes(), 3));
  }
}

/// Outputs and all gradients of the layer against the loop reference.
double error_against_reference(const LayerCase& test, const Describe& describe = describe_top_k) {
  RankGrid grid = testing::self_grid();
  MoeLayer layer(test.options, test.width, kPath, {&grid, torch::kFloat64});
  const std::vector<Parameter> parameters = parameters_of(layer, kPath);
  fill(parameters);
  torch::Tensor x =
      some_numbers({test.num_samples, test.rows_per_sample, test.width}, 1).set_requires_grad(true);
  const torch::Tensor upstream = some_numbers(x.sizes(), 2);
  const StepContext step = testing::step_of(test.num_samples, test.samples_per_group);
  const torch::Tensor y = layer.forward(x, step).y_BRD;
  (y * upstream).sum().backward();
  std::vector<torch::Tensor> tensors{x};
  for (const Parameter& parameter : parameters) tensors.push_back(parameter.tensor);
  std::vector<torch::Tensor> grads;
  for (torch::Tensor tensor : tensors) {
    grads.push_back(tensor.grad().clone());
    tensor.mutable_grad().reset();
  }

  const Pass pass{layer, x.reshape({-1, test.width}), step, test.rows_per_sample};
  ReferenceMoe reference = reference_of(pass);
  const torch::Tensor noise = describe(reference, pass);
  const torch::Tensor expected =
      reference.run(pass.x_TD, noise, pass.tokens_per_group()).y_TD.reshape(y.sizes());
  (expected * upstream).sum().backward();
  double error = (y - expected).abs().max().item<double>();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const double scale = std::max(1.0, tensors[i].grad().abs().max().item<double>());
    error = worst_of(error, (grads[i] - tensors[i].grad()).abs().max().item<double>() / scale);
  }
  return error;
}

TEST(MoeLayer, EqualsTheLoopReference) {
  for (const LayerCase& test : layer_cases()) {
    EXPECT_LT(error_against_reference(test), 1e-12) << test.name;
  }
}

TEST(MoeLayer, EqualsTheLoopReferenceInTheBruteForceShapes) {  // P2
  for (const int64_t units : {4, 8}) {
    for (const int64_t k : {2, 3}) {
      LayerCase test{
          "brute force",
          layer_options({"top_k", ScoreOptions{k, RouterNoise::kNone, {}}}, {}, {}, units)};
      test.options.experts =
          Choice<UnitBank>("plain", ExpertBank::Options{units, 32, Activation::kGelu, true});
      test.num_samples = 4;
      test.rows_per_sample = 1;
      test.width = 16;
      EXPECT_LT(error_against_reference(test), 1e-12);
    }
  }
}

/// Positions of the k highest values, the lower first among equals.
std::vector<int64_t> highest(const torch::Tensor& value_N, int64_t k) {
  return values(std::get<1>(value_N.sort(/*stable=*/true, 0, /*descending=*/true)).slice(0, 0, k));
}

/// Rows, then columns, of exp(logits) are divided by their sums eight times, group by group.
Choices sinkhorn_choices(const Pass& pass, int64_t k) {
  Choices choices;
  const torch::Tensor exp_TU = pass.logits_TU().detach().exp();
  for (torch::Tensor group_TU : exp_TU.split(pass.tokens_per_group())) {
    for (int i = 0; i < 8; ++i) {
      group_TU = group_TU / group_TU.sum(1, true);
      group_TU = group_TU / group_TU.sum(0, true);
    }
    for (int64_t t = 0; t < group_TU.size(0); ++t) choices.push_back(highest(group_TU[t], k));
  }
  return choices;
}

/// Each unit takes the `num_taken` tokens of a group that score highest with it.
Choices taken_by_units(const Pass& pass, int64_t num_taken) {
  Choices choices(static_cast<size_t>(pass.num_tokens()));
  const torch::Tensor gate_TU = pass.logits_TU().detach().softmax(1);
  const int64_t length = pass.tokens_per_group();
  for (int64_t begin = 0; begin < pass.num_tokens(); begin += length) {
    for (int64_t u = 0; u < pass.num_units(); ++u) {
      for (const int64_t t :
           highest(gate_TU.slice(0, begin, begin + length).select(1, u), num_taken)) {
        choices[static_cast<size_t>(begin + t)].push_back(u);
      }
    }
  }
  return choices;
}

/// The units of the k highest draws of a token's position in its sample.
Choices hashed(const Pass& pass, int64_t k) {
  Choices choices;
  const Stream stream{pass.step.seed, Purpose::kRouting, hash_name(kPath), 0};
  const torch::Tensor draw_RU =
      uniform_rows(stream, torch::arange(pass.rows_per_sample), pass.num_units(), torch::kFloat32);
  for (int64_t t = 0; t < pass.num_tokens(); ++t) {
    choices.push_back(highest(draw_RU[t % pass.rows_per_sample], k));
  }
  return choices;
}

struct RouterCase {
  const char* router;
  Describe describe;
};

const RouterCase kRouterCases[] = {
    {"{name: sigmoid, k: 2, weights: {normalise: sum, scale: 2.5}}",
     [](ReferenceMoe& reference, const Pass& pass) {
       reference.score = ReferenceMoe::Score::kSigmoid;
       reference.normalise = ReferenceMoe::Normalise::kSum;
       reference.scale = 2.5;
       return no_noise(pass);
     }},
    {"{name: sigmoid, k: 1, noise: gaussian, weights: {normalise: none}}",
     [](ReferenceMoe& reference, const Pass& pass) {
       reference.score = ReferenceMoe::Score::kSigmoid;
       reference.k = 1;
       return unit_noise(pass) / static_cast<double>(pass.num_units());
     }},
    {"{name: sqrt_softplus, k: 3}",
     [](ReferenceMoe& reference, const Pass& pass) {
       reference.score = ReferenceMoe::Score::kSqrtSoftplus;
       reference.k = 3;
       reference.normalise = ReferenceMoe::Normalise::kSum;
       return no_noise(pass);
     }},
    {"{name: noisy_top_k, k: 2}",
     [](ReferenceMoe& reference, const Pass& pass) {
       reference.normalise = ReferenceMoe::Normalise::kTopkSoftmax;
       const torch::Tensor raw = pass.x_TD.matmul(parameter_of(pass.layer, "router.noise_weight"));
       return unit_noise(pass) * (at::log1p(raw.exp()) + 1e-2);
     }},
    {"{name: sinkhorn, k: 2}",
     [](ReferenceMoe& reference, const Pass& pass) {
       reference.choices = sinkhorn_choices(pass, 2);
       return no_noise(pass);
     }},
    // Of 4 units and groups of 10 tokens: ceil(2 * 10 * 1.3 / 4) = 7 each.
    {"{name: expert_choice, k: 2, factor: 1.3}",
     [](ReferenceMoe& reference, const Pass& pass) {
       reference.k = pass.num_units();
       reference.choices = taken_by_units(pass, 7);
       return no_noise(pass);
     }},
    {"{name: hash, k: 2}",
     [](ReferenceMoe& reference, const Pass& pass) {
       reference.choices = hashed(pass, 2);
       reference.has_even_weights = true;
       return no_noise(pass);
     }},
};

TEST(MoeLayer, EqualsTheLoopReferenceForEveryRouter) {
  for (const RouterCase& test : kRouterCases) {
    const LayerCase layer{test.router, layer_options(testing::router_choice(test.router), {}, {})};
    EXPECT_LT(error_against_reference(layer, test.describe), 1e-12) << test.router;
  }
}

}  // namespace
}  // namespace shoal
