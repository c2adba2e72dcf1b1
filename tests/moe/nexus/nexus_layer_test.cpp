#include "moe/nexus/nexus_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/einsum.h>
#include <ATen/ops/embedding_bag.h>

#include <cmath>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/options/config_reader.h"
#include "runtime/random/random.h"
#include "tests/moe/nexus/nexus_case.h"
#include "tests/support/config_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

// B images  N tokens of an image  D width  E experts  M memory units  U = E + M  s slots of a unit
namespace shoal {
namespace {

using ::testing::ElementsAre;
using testing::gradient_error;
using ::testing::HasSubstr;
using testing::kNexusPath;
using testing::nexus_options;
using testing::nexus_step;
using testing::self_grid;
using testing::some_numbers;

/// A layer on one rank, float64 unless said otherwise, with its first values.
struct Alone {
  explicit Alone(const NexusOptions& options, int64_t width = 6,
                 torch::TensorOptions tensors = torch::kFloat64)
      : grid(self_grid()), layer(options, width, kNexusPath, {&grid, tensors}) {
    initialise(parameters_of(layer, kNexusPath), 9);
  }
  torch::Tensor operator()(const torch::Tensor& x) {
    return layer.forward(x, nexus_step(0, x.size(0), x.size(0))).y_BRD;
  }
  torch::Tensor parameter(const std::string& name) const {
    for (const Parameter& parameter : parameters_of(layer, kNexusPath)) {
      if (parameter.name == kNexusPath + ("." + name)) return parameter.tensor;
    }
    throw std::runtime_error("no parameter " + name);
  }

  RankGrid grid;
  NexusLayer layer;
};

void set(const Alone& alone, const std::string& name, const std::vector<double>& values) {
  const torch::Tensor parameter = alone.parameter(name).detach();
  parameter.copy_(torch::tensor(values, torch::kFloat64).view(parameter.sizes()));
}

TEST(NexusLayer, AHandWorkedCase) {
  // Two tokens, an expert and a memory unit with a slot each. All logits are ln 3 or 0, so both
  // softmaxes are (3/4, 1/4): slots z = (.75, .25) and (.25, .75). The expert makes (3, 6) of its
  // slot. The memory's scores are 0, ln 2, -1: 1/3 of value 0 and 2/3 of value 1 are (2, 1).
  const double ln2 = std::log(2.0), ln3 = std::log(3.0);
  for (const NexusVariant variant : {NexusVariant::kPaper, NexusVariant::kNormalised}) {
    NexusOptions options = nexus_options(1, 1, variant);
    options.experts.hidden = 1;
    options.memory = {1, 3, 2};
    options.slots = 1;
    Alone alone(options, 2);
    set(alone, "experts.*.fc1.weight", {4, 0});
    set(alone, "experts.*.fc2.weight", {1, 2});
    set(alone, "memory.*.values", {0, 3, 3, 0, 9, 9});
    if (variant == NexusVariant::kPaper) {
      set(alone, "router.queries", {ln3, 0, 0, ln3});
      set(alone, "memory.*.keys", {0, 0, 4 * ln2, 0, -1, -1});
    } else {
      set(alone, "router.queries", {5, 0, 0, 7});
      set(alone, "router.log_scale", {std::log(ln3)});
      set(alone, "memory.*.keys", {0, 0, -ln2 / 3, 0, 1, 0});  // the query is (-1, 1)
      set(alone, "memory.*.log_scale", {ln3});
    }
    const torch::Tensor y = alone(torch::eye(2, torch::kFloat64).unsqueeze(0));
    const torch::Tensor expected =
        torch::tensor({2.75, 4.75, 2.25, 2.25}, torch::kFloat64).view({1, 2, 2});
    // What keeps divisions by a length or a deviation finite is 1e-6.
    EXPECT_LT((y - expected).abs().max().item<double>(),
              variant == NexusVariant::kPaper ? 1e-14 : 1e-4);
  }
}

/// Outputs of two functions of the same tensors, and their gradients, against each other.
double error_between(const std::function<torch::Tensor()>& function,
                     const std::function<torch::Tensor()>& reference,
                     std::vector<torch::Tensor> tensors) {
  const auto run = [&](const std::function<torch::Tensor()>& f) {
    const torch::Tensor y = f();
    (y * some_numbers(y.sizes(), 5)).sum().backward();
    std::vector<torch::Tensor> results{y.detach()};
    for (torch::Tensor& tensor : tensors) {
      results.push_back(tensor.grad().clone());
      tensor.mutable_grad().reset();
    }
    return results;
  };
  const std::vector<torch::Tensor> found = run(function), expected = run(reference);
  double error = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double scale = std::max(1.0, expected[i].abs().max().item<double>());
    error = testing::worst_of(error, (found[i] - expected[i]).abs().max().item<double>() / scale);
  }
  return error;
}

/// Algorithms A1 and A2, line by line.
torch::Tensor paper(const Alone& alone, const torch::Tensor& x, int64_t num_memory) {
  const torch::Tensor temp = alone.parameter("router.temperature");
  const torch::Tensor affinity =
      at::einsum("bnd,esd->bnes", {x, alone.parameter("router.queries")});
  const torch::Tensor D = torch::softmax(affinity / temp[0], 1);
  const torch::Tensor combine_logits = affinity / temp[1];
  const torch::Tensor B = torch::softmax(combine_logits.flatten(-2), -1).view_as(affinity);
  const torch::Tensor z_in = at::einsum("bnes,bnd->besd", {D, x});
  const int64_t E = z_in.size(1) - num_memory;
  torch::Tensor expert =
      at::einsum("besd,edh->besh", {z_in.narrow(1, 0, E), alone.parameter("experts.*.fc1.weight")});
  expert =
      at::einsum("besh,ehd->besd", {torch::relu(expert), alone.parameter("experts.*.fc2.weight")});

  const torch::Tensor z_mem = z_in.narrow(1, E, num_memory);
  const torch::Tensor keys = alone.parameter("memory.*.keys");
  const int64_t num_keys = keys.size(1), top = 3;
  const auto [score, key] = at::einsum("besd,ekd->besk", {z_mem, keys}).topk(top, -1);
  const torch::Tensor offset = torch::arange(num_memory) * num_keys;
  const torch::Tensor flat_indices = (key + offset.view({1, -1, 1, 1})).reshape({-1});
  const torch::Tensor values = alone.parameter("memory.*.values").flatten(0, 1);
  const torch::Tensor memory = std::get<0>(
      at::embedding_bag(values, flat_indices, torch::arange(0, flat_indices.size(0), top), false, 0,
                        false, torch::softmax(score, -1).reshape({-1})));
  const torch::Tensor z_out = torch::cat({expert, memory.view(z_mem.sizes())}, 1);
  return at::einsum("bnes,besd->bnd", {B, z_out});
}

TEST(NexusLayer, ThePapersVariantIsThePaper) {
  NexusOptions options = nexus_options(3, 2, NexusVariant::kPaper);
  Alone alone(options);
  alone.parameter("router.temperature").detach().copy_(torch::tensor({1.3, 0.8}));
  // Small tokens: with first values of the paper's scale both softmaxes would be one-hot.
  const torch::Tensor x = some_numbers({4, 5, 6}, 1).mul_(0.4).set_requires_grad(true);
  std::vector<torch::Tensor> tensors{x};
  for (const Parameter& parameter : parameters_of(alone.layer)) tensors.push_back(parameter.tensor);
  EXPECT_LT(error_between([&] { return alone(x); }, [&] { return paper(alone, x, 2); }, tensors),
            1e-13);
}

/// The Soft MoE layer: image by image, slot by slot.
torch::Tensor soft_moe(const Alone& alone, const torch::Tensor& x) {
  const auto unit_length = [](const torch::Tensor& v) {
    return v * (v.square().sum(-1, true) + 1e-6).rsqrt();
  };
  const torch::Tensor phi = unit_length(alone.parameter("router.queries"));  // [U, s, D]
  const torch::Tensor scale = alone.parameter("router.log_scale").exp();
  const torch::Tensor fc1 = alone.parameter("experts.*.fc1.weight");
  const torch::Tensor fc2 = alone.parameter("experts.*.fc2.weight");
  std::vector<torch::Tensor> images;
  for (int64_t b = 0; b < x.size(0); ++b) {
    const torch::Tensor logits_NP = scale * unit_length(x[b]).matmul(phi.flatten(0, 1).t());
    const torch::Tensor dispatch = logits_NP.softmax(0), combine = logits_NP.softmax(1);
    torch::Tensor y = torch::zeros_like(x[b]);
    for (int64_t u = 0; u < phi.size(0); ++u) {
      for (int64_t s = 0; s < phi.size(1); ++s) {
        const int64_t p = u * phi.size(1) + s;
        const torch::Tensor slot = dispatch.select(1, p).matmul(x[b]);
        const torch::Tensor out = torch::relu(slot.matmul(fc1[u])).matmul(fc2[u]);
        y = y + combine.select(1, p).unsqueeze(1) * out;
      }
    }
    images.push_back(y);
  }
  return torch::stack(images);
}

TEST(NexusLayer, WithoutMemoryUnitsItIsSoftMoe) {
  Alone alone(nexus_options(3, 0));
  const torch::Tensor x = some_numbers({4, 5, 6}, 1).set_requires_grad(true);
  std::vector<torch::Tensor> tensors{x};
  for (const Parameter& parameter : parameters_of(alone.layer)) tensors.push_back(parameter.tensor);
  EXPECT_EQ(tensors.size(), 5u);
  EXPECT_LT(error_between([&] { return alone(x); }, [&] { return soft_moe(alone, x); }, tensors),
            1e-13);
}

TEST(NexusLayer, GradientsAreThoseOfFiniteDifferences) {
  for (const NexusVariant variant : {NexusVariant::kNormalised, NexusVariant::kPaper}) {
    for (const auto& [experts, memory] : {std::pair{2, 2}, std::pair{2, 0}, std::pair{0, 2}}) {
      NexusOptions options = nexus_options(experts, memory, variant);
      options.experts.activation = Activation::kGelu;  // no kinks
      options.experts.bias = true;
      Alone alone(options, 4);
      torch::Tensor x = some_numbers({2, 3, 4}, 1).set_requires_grad(true);
      std::vector<torch::Tensor> inputs{x};
      for (const Parameter& parameter : parameters_of(alone.layer)) {
        inputs.push_back(parameter.tensor);
      }
      EXPECT_LT(gradient_error([&] { return alone(x); }, inputs), 1e-6) << experts << memory;
    }
  }
}

TEST(NexusLayer, ImagesDoNotSeeEachOther) {
  Alone alone(nexus_options(3, 2));
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = some_numbers({4, 5, 6}, 1);
  const torch::Tensor y = alone(x);
  for (int64_t b = 0; b < 4; ++b) {
    EXPECT_LT((alone(x.narrow(0, b, 1))[0] - y[b]).abs().max().item<double>(), 1e-14) << b;
  }
}

TEST(NexusLayer, TheOrderOfTokensDoesNotMatter) {
  Alone alone(nexus_options(3, 2));
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = some_numbers({3, 5, 6}, 1);
  const torch::Tensor order = torch::tensor({3, 0, 4, 1, 2});
  const torch::Tensor expected = alone(x).index_select(1, order);
  EXPECT_LT((alone(x.index_select(1, order)) - expected).abs().max().item<double>(), 1e-14);
}

/// The dispatch weights that an observer of one forward pass receives.
torch::Tensor dispatch_weights(Alone& alone, const torch::Tensor& x) {
  torch::Tensor seen;
  alone.layer.observe([&seen](const torch::Tensor& dispatch_BNUs) { seen = dispatch_BNUs; });
  alone(x);
  alone.layer.observe({});
  return seen;
}

TEST(NexusLayer, TokensOfAnyLengthRouteAlike) {
  // Logits come from directions: only the sum of squares' small constant tells lengths apart.
  Alone alone(nexus_options(3, 2));
  const torch::Tensor x = some_numbers({3, 5, 6}, 1);
  const torch::Tensor before = dispatch_weights(alone, x);
  EXPECT_LT((dispatch_weights(alone, x * 50) - before).abs().max().item<double>(), 1e-5);
}

TEST(NexusLayer, DispatchWeightsAreSharesOfTheTokensOfAnImage) {
  Alone alone(nexus_options(3, 2));
  const torch::Tensor x = some_numbers({4, 5, 6}, 1).set_requires_grad(true);
  const torch::Tensor weights = dispatch_weights(alone, x);
  EXPECT_EQ(weights.sizes(), (std::vector<int64_t>{4, 5, 5, 2}));
  EXPECT_FALSE(weights.requires_grad());
  EXPECT_GT(weights.min().item<double>(), 0.0);
  EXPECT_LT((weights.sum(1) - 1).abs().max().item<double>(), 1e-14);
}

/// exp of the entropy over the tokens of an image, averaged over slots: how many tokens a slot is
/// made of.
double tokens_per_slot(NexusVariant variant, std::optional<double> router_scale = {}) {
  NexusOptions options = nexus_options(16, 0, variant);
  options.slots = 12;
  options.experts.hidden = 1;
  options.router_scale = router_scale;
  Alone alone(options, 768, torch::kFloat32);
  torch::Tensor x = torch::empty({2, 196, 768});
  fill_normal(x, Stream{1, Purpose::kTest, 1, 0});
  const torch::Tensor weight = dispatch_weights(alone, x).to(torch::kFloat64);
  const torch::Tensor entropy = -(weight * weight.clamp_min(1e-300).log()).sum(1);
  return entropy.exp().mean().item<double>();
}

// Logits of standard deviation 27.8 make slots of hardly more than one token; of 1, of most tokens;
// of 0.04, of all 196 alike.
TEST(NexusLayer, FirstValuesDecideHowManyTokensASlotIsMadeOf) {
  EXPECT_NEAR(tokens_per_slot(NexusVariant::kPaper), 1.24, 0.1);
  EXPECT_NEAR(tokens_per_slot(NexusVariant::kNormalised), 120.5, 3.0);
  EXPECT_NEAR(tokens_per_slot(NexusVariant::kNormalised, 1.0), 195.9, 0.1);
}

TEST(NexusLayer, ThePapersFirstValuesAreStandardNormal) {
  NexusOptions options = nexus_options(2, 1, NexusVariant::kPaper);
  options.experts.hidden = 512;
  options.memory.keys = 100;
  options.slots = 24;
  const Alone alone(options, 128);
  // 9,216 draws or more: the standard error of the deviation is 0.0074, of the mean 0.0104.
  for (const char* name : {"router.queries", "experts.*.fc1.weight", "experts.*.fc2.weight",
                           "memory.*.keys", "memory.*.values"}) {
    const torch::Tensor values = alone.parameter(name).detach();
    EXPECT_NEAR(values.std().item<double>(), 1.0, 0.035) << name;
    EXPECT_NEAR(values.mean().item<double>(), 0.0, 0.05) << name;
  }
  EXPECT_TRUE(
      torch::equal(alone.parameter("router.temperature"), torch::ones({2}, torch::kFloat64)));
  for (const Parameter& parameter : parameters_of(alone.layer, kNexusPath)) {
    EXPECT_EQ(parameter.name.find("log_scale"), std::string::npos) << parameter.name;
  }
}

// Decay is for matrices: parameters of two dimensions and more.
TEST(NexusLayer, ScalesAndTemperaturesDoNotDecay) {
  for (const auto& [variant, scales] :
       {std::pair{NexusVariant::kNormalised, 2}, std::pair{NexusVariant::kPaper, 1}}) {
    const NexusLayer layer(nexus_options(3, 2, variant), 6, kNexusPath,
                           {nullptr, torch::TensorOptions().device(torch::kMeta)});
    int num_scales = 0;
    for (const Parameter& parameter : parameters_of(layer, kNexusPath)) {
      const bool is_scale =
          parameter.name.ends_with("log_scale") || parameter.name.ends_with("temperature");
      num_scales += is_scale ? 1 : 0;
      EXPECT_EQ(parameter.matrix_dims() >= 2, !is_scale) << parameter.name;
    }
    EXPECT_EQ(num_scales, scales);
  }
}

TEST(NexusLayer, FirstValuesKeepTheScaleOfASlot) {
  NexusOptions options = nexus_options(2, 0);
  options.experts.hidden = 512;
  const Alone alone(options, 128);
  EXPECT_NEAR(alone.parameter("experts.*.fc1.weight").std().item<double>(), std::sqrt(2.0 / 128),
              1e-3);
  EXPECT_NEAR(alone.parameter("experts.*.fc2.weight").std().item<double>(), std::sqrt(1.0 / 512),
              1e-3);
  // 512 draws: the standard error of the deviation is 0.0028.
  EXPECT_NEAR(alone.parameter("router.queries").std().item<double>(), std::sqrt(1.0 / 128), 0.012);
  EXPECT_NEAR(alone.parameter("router.log_scale").exp().item<double>(), std::sqrt(128.0), 1e-9);
  options.router_scale = 3.0;
  EXPECT_NEAR(Alone(options, 128).parameter("router.log_scale").exp().item<double>(), 3.0, 1e-12);
}

TEST(NexusLayer, CountsWhatItDid) {
  Alone alone(nexus_options(3, 2));
  const torch::Tensor x = some_numbers({4, 5, 6}, 1);
  StepContext step = nexus_step(0, 4, 4);
  const MoeOutput output = alone.layer.forward(x, step);
  EXPECT_FALSE(output.auxiliary_loss.defined());
  EXPECT_FALSE(output.stats.first_unit_T.defined());
  const torch::Tensor load_U = output.stats.sums.narrow(0, 0, 5);
  EXPECT_NEAR(load_U.sum().item<double>(), 20.0, 1e-12);
  EXPECT_GT(load_U.min().item<double>(), 0.0);
  EXPECT_TRUE(report(output.stats).rank_overload_E.empty()) << "weights are not work";
  const MoeReport result = report(output.stats);
  EXPECT_EQ(result.layer, kNexusPath);
  EXPECT_EQ(result.tokens, 20);
  EXPECT_EQ(result.dropped, 0.0);
  EXPECT_GT(result.router_entropy, 0.5);
  EXPECT_LE(result.router_entropy, 1.0);
  step.training = false;
  const MoeOutput evaluated = alone.layer.forward(x, step);
  EXPECT_TRUE(torch::equal(evaluated.y_BRD, output.y_BRD));
  EXPECT_EQ(evaluated.stats.first_unit_T.sizes(), (std::vector<int64_t>{20}));
  EXPECT_LT(evaluated.stats.first_unit_T.max().item<int64_t>(), 5);
}

/// What a layer makes of some samples, and its gradients where `upstream` is given for y.
struct NexusPass {
  torch::Tensor y, x_grad, stats, first_unit_T;
  std::vector<torch::Tensor> weight_grads;

  NexusPass(const NexusOptions& options, const torch::Tensor& x_BND, const torch::Tensor& upstream,
            StepContext step) {
    step.training = false;
    Alone alone(options);
    const torch::Tensor x = x_BND.clone().set_requires_grad(true);
    const MoeOutput output = alone.layer.forward(x, step);
    (output.y_BRD * upstream).sum().backward();
    y = output.y_BRD.detach();
    x_grad = x.grad();
    stats = output.stats.sums;
    first_unit_T = output.stats.first_unit_T;
    for (const torch::Tensor& weight : alone.layer.parameters()) {
      weight_grads.push_back(weight.grad());
    }
  }
};

TEST(NexusLayer, PaddingIsNoToken) {
  using testing::apart;
  const torch::Tensor x = some_numbers({2, 5, 6}, 1), upstream = some_numbers({2, 8, 6}, 2);
  for (const NexusVariant variant : {NexusVariant::kNormalised, NexusVariant::kPaper}) {
    const NexusOptions options = nexus_options(3, 2, variant);
    torch::Tensor padded = torch::full({2, 8, 6}, NAN, torch::kFloat64);
    padded[0].narrow(0, 0, 3).copy_(x[0].narrow(0, 0, 3));
    padded[1].narrow(0, 0, 5).copy_(x[1]);
    StepContext step = nexus_step(0, 2, 2);
    step.length_b = torch::tensor({3, 5}, torch::kInt64);
    const NexusPass both(options, padded, upstream, step);
    std::vector<NexusPass> alone;
    for (const int64_t b : {0, 1}) {
      const int64_t length = b == 0 ? 3 : 5;
      const auto own = [&](const torch::Tensor& all) {
        return all.narrow(0, b, 1).narrow(1, 0, length);
      };
      alone.emplace_back(options, own(x), own(upstream), nexus_step(b, 1, 1));
      EXPECT_LT(apart(own(both.y), alone.back().y), 1e-13);
      EXPECT_LT(apart(own(both.x_grad), alone.back().x_grad), 1e-13);
      for (const torch::Tensor& tensor : {both.y, both.x_grad}) {
        EXPECT_EQ(tensor[b].narrow(0, length, 8 - length).abs().max().item<double>(), 0.0);
      }
    }
    EXPECT_LT(apart(both.stats, alone[0].stats + alone[1].stats), 1e-13);
    EXPECT_TRUE(
        both.first_unit_T.equal(torch::cat({alone[0].first_unit_T, alone[1].first_unit_T})));
    for (size_t i = 0; i < both.weight_grads.size(); ++i) {
      EXPECT_LT(apart(both.weight_grads[i], alone[0].weight_grads[i] + alone[1].weight_grads[i]),
                1e-12);
    }
  }
}

TEST(NexusLayer, CountsAHandWorkedCase) {
  // The combine weights of token 0 are 1, 4, 2, 1 eighths over the slots of units 0, 0, 1, 1, those
  // of token 1 are 1, 1, 2, 12 sixteenths: units get 5/8 and 3/8, and 1/8 and 7/8.
  NexusOptions options = nexus_options(1, 1, NexusVariant::kPaper);
  Alone alone(options, 2);
  const auto log = [](double value) { return std::log(value); };
  set(alone, "router.queries", {log(1), log(1), log(4), log(1), log(2), log(2), log(1), log(12)});
  StepContext step = nexus_step(0, 1, 1);
  step.training = false;
  const MoeStats stats =
      alone.layer.forward(torch::eye(2, torch::kFloat64).view({1, 2, 2}), step).stats;
  EXPECT_NEAR(stats.sums[0].item<double>(), 0.75, 1e-15);
  EXPECT_NEAR(stats.sums[1].item<double>(), 1.25, 1e-15);
  const auto entropy = [](double p) { return -p * std::log2(p) - (1 - p) * std::log2(1 - p); };
  EXPECT_NEAR(report(stats).router_entropy, (entropy(5.0 / 8) + entropy(1.0 / 8)) / 2, 1e-15);
  EXPECT_NEAR(report(stats).mutual_information.value(),
              (entropy(3.0 / 8) - (entropy(5.0 / 8) + entropy(1.0 / 8)) / 2) * std::log(2.0),
              1e-15);
  EXPECT_TRUE(torch::equal(stats.first_unit_T, torch::tensor({0, 1}, torch::kInt64)));
}

TEST(NexusLayer, IsBuiltOnTheMetaDeviceAndHasTheParametersOfThePaper) {
  NexusOptions options;  // 12 experts, 4 memory units of 1,024 keys
  options.slots = 12;
  const int64_t D = 384, U = 16;
  const NexusLayer layer(options, D, kNexusPath,
                         {nullptr, torch::TensorOptions().device(torch::kMeta)});
  std::map<std::string, int64_t> numbers;
  for (const Parameter& parameter : parameters_of(layer, kNexusPath)) {
    numbers[parameter.name.substr(std::string(kNexusPath).size() + 1)] = parameter.tensor.numel();
  }
  EXPECT_EQ(numbers, (std::map<std::string, int64_t>{{"router.queries", U * 12 * D},
                                                     {"router.log_scale", 1},
                                                     {"experts.*.fc1.weight", 12 * 4 * D * D},
                                                     {"experts.*.fc2.weight", 12 * 4 * D * D},
                                                     {"memory.*.keys", 4 * 1024 * D},
                                                     {"memory.*.values", 4 * 1024 * D},
                                                     {"memory.*.log_scale", 4}}));
  EXPECT_EQ(layer.info().name, kNexusPath);
  EXPECT_EQ(layer.info().num_units, 16);
  EXPECT_EQ(layer.info().units_per_token, 16);
  EXPECT_EQ(layer.info().num_memory_units, 4);
}

std::vector<std::string> nexus_mistakes(const std::string& text) {
  return testing::mistakes_of([&] { config::load_options_text<NexusOptions>(text, "r.yaml"); });
}

TEST(NexusLayer, ImpossibleOptionsAreConfigErrors) {
  EXPECT_THAT(nexus_mistakes("experts: {hidden: auto}\nrouter_scale: auto\nvariant: paper"),
              ElementsAre());
  EXPECT_THAT(nexus_mistakes("experts: {count: 4}\nmemory: {count: 0}\nrouter_scale: 2"),
              ElementsAre());
  EXPECT_THAT(nexus_mistakes("experts: {count: 0}\nmemory: {count: 0}"),
              ElementsAre(HasSubstr("needs an expert or a memory unit")));
  EXPECT_THAT(nexus_mistakes("experts: {count: 65532}"), ElementsAre());
  EXPECT_THAT(nexus_mistakes("experts: {count: 65533}"),
              ElementsAre(HasSubstr("memory.count: with 65533 experts these are 65537 units, a "
                                    "layer has at most 65536")));
  EXPECT_THAT(nexus_mistakes("memory: {k: 1}"), ElementsAre(HasSubstr("memory.k")));
  EXPECT_THAT(nexus_mistakes("memory: {keys: 3, k: 4}"),
              ElementsAre(HasSubstr("4 keys per slot, but a unit has only 3")));
  EXPECT_THAT(nexus_mistakes("variant: paper\nrouter_scale: 3"),
              ElementsAre(HasSubstr("the paper's variant has temperatures instead")));
  EXPECT_THAT(nexus_mistakes("router_scale: 0"), ElementsAre(HasSubstr("router_scale")));
  EXPECT_THAT(nexus_mistakes("slots: 0"), ElementsAre(HasSubstr("slots")));
}

TEST(NexusLayer, ACausalModelRefusesIt) {
  BuildContext context;
  context.is_causal = true;
  EXPECT_THAT(
      testing::mistakes_of([&] { NexusLayer(nexus_options(2, 1), 6, kNexusPath, context); }),
      ElementsAre(HasSubstr("blocks.3.nexus: a slot sees all tokens")));
}

TEST(NexusLayer, RefusesWhatDoesNotFit) {
  Alone alone(nexus_options(2, 1));
  EXPECT_THROW(alone.layer.forward(some_numbers({3, 5, 6}, 1), nexus_step(0, 2, 2)), c10::Error);
  NexusLayer unplaced(nexus_options(2, 1), 6, kNexusPath, {nullptr, torch::kFloat64});
  EXPECT_THROW(unplaced.forward(some_numbers({2, 5, 6}, 1), nexus_step(0, 2, 2)), c10::Error);
}

}  // namespace
}  // namespace shoal
