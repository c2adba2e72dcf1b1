#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/config_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/tiny_decoder.h"

// b sequences  S tokens  C width  N heads  H head width
namespace shoal {
namespace {

using testing::apart;
using testing::build_backbone;
using ::testing::HasSubstr;
using testing::kTinyText;
using testing::meta_context;
using testing::some_step;
using testing::some_tokens;

/// Two blocks of width 8 with four heads, two of keys and values.
std::string tiny_hspmn(const std::string& more = "", const std::string& gate = "") {
  return "model: {backbone: hspmn, width: 8, depth: 2, heads: 4, kv_heads: 2, hidden: 10, context: "
         "9, rope_base: 50, gate: {anchor_every: 4, first_rate: 0.5, rate: 0.5, anneal_steps: 0" +
         gate + "}" + more + "}";
}

/// Ways of building one, all causal.
const std::map<std::string, std::string> kModels{
    {"Threshold", tiny_hspmn()},
    {"Predictor", tiny_hspmn("", ", select: topk_predictor")},
    {"Random", tiny_hspmn("", ", select: random")},
    {"Capacity", tiny_hspmn("", ", capacity: 1.2, block: 2")},
    {"Dense", tiny_hspmn(", contextual: dense")},
    {"None", tiny_hspmn(", contextual: none")},
    {"Mixed", tiny_hspmn(", dense_blocks: [1], pad_vocabulary: 8", ", temperature: learned")},
    {"Experts",
     tiny_hspmn(", sparse_blocks: {from: 0, every: 1}, moe: {router: {name: top_k, k: 2, noise: "
                "none}, experts: {kind: gated, count: 3, hidden: 5}, losses: [{name: importance, "
                "weight: 0.1}]}")}};

std::shared_ptr<Backbone> hspmn_on_meta(const std::string& keys) {
  return build_backbone("model: {backbone: hspmn" + keys + "}",
                        {.source = "text", .sequence = 4096, .vocabulary = 50257}, meta_context());
}

TEST(Hspmn, ABlockHasThePublishedParametersExactly) {
  const auto count = [](const std::string& keys) {
    return testing::count_parameters(*hspmn_on_meta(keys));
  };
  const std::string paper = ", gate: {temperature: learned}";
  EXPECT_EQ(count(", depth: 1" + paper) - count(", depth: 0" + paper), 60829698);
  EXPECT_EQ(count(paper), int64_t{16} * 60829698 + int64_t{50257} * 2048 + 2048);
  // Without its gate.
  EXPECT_EQ(count(", depth: 1, contextual: dense") - count(", depth: 0"), 60829698 - 2050);
}

class HspmnModel : public testing::TinyDecoder {};

/// The features by the specification's equations as they stand, in evaluation.
class PlainHspmn {
 public:
  explicit PlainHspmn(const torch::nn::Module& model) {
    for (const Parameter& parameter : parameters_of(model)) {
      tensors_.insert_or_assign(parameter.name, parameter.tensor);
    }
  }
  /// How a token's attention is weighted, from whether it is open and its logit.
  using Weight = std::function<torch::Tensor(const torch::Tensor& is_open, const torch::Tensor& l)>;
  torch::Tensor features(
      const torch::Tensor& token_bS, double threshold,
      const Weight& weight = [](const torch::Tensor& is_open, const torch::Tensor&) {
        return is_open.to(torch::kFloat64);
      }) const {
    torch::Tensor x = at("tokens").index({token_bS});
    for (const std::string block : {"blocks.0.", "blocks.1."}) {
      const torch::Tensor convolved =
          convolve(norm(x, block + "mlp_norm"), at(block + "conv.weight"));
      const torch::Tensor hidden =
          at::silu(linear(convolved, block + "mlp.gate")) * linear(convolved, block + "mlp.fc1");
      const torch::Tensor u = norm(x, block + "attention_norm");
      const torch::Tensor logit = u.matmul(at(block + "gate.weight")) + at(block + "gate.bias");
      const torch::Tensor position = torch::arange(x.size(1), torch::kInt64);
      const torch::Tensor is_anchor = (position.remainder(4) == 0).expand_as(logit);
      const torch::Tensor weights = torch::where(is_anchor, torch::ones_like(logit),
                                                 weight(logit > threshold, logit - threshold));
      x = x + linear(hidden, block + "mlp.fc2") +
          weights.unsqueeze(2) * attention(u, block + "attention");
    }
    return norm(x, "norm");
  }

 private:
  const torch::Tensor& at(const std::string& name) const { return tensors_.at(name); }
  torch::Tensor norm(const torch::Tensor& x, const std::string& path) const {
    return x / (x.square().mean(-1, true) + 1e-5).sqrt() * at(path + ".weight");
  }
  torch::Tensor linear(const torch::Tensor& x, const std::string& path) const {
    return at::linear(x, at(path + ".weight"));
  }
  static torch::Tensor convolve(const torch::Tensor& u, const torch::Tensor& weight) {
    const torch::Tensor padded = torch::cat({torch::zeros_like(u).narrow(1, 0, 2), u}, 1);
    const int64_t S = u.size(1);
    return weight[0] * padded.narrow(1, 0, S) + weight[1] * padded.narrow(1, 1, S) +
           weight[2] * padded.narrow(1, 2, S);
  }
  /// The pair (x0, x1) of a head of width 2 is turned by its position.
  static torch::Tensor turned(const torch::Tensor& x_bS2) {
    const torch::Tensor angle = torch::arange(x_bS2.size(1), torch::kFloat64);
    const torch::Tensor c = angle.cos(), s = angle.sin();
    const torch::Tensor a = x_bS2.select(2, 0), b = x_bS2.select(2, 1);
    return torch::stack({a * c - b * s, b * c + a * s}, 2);
  }
  torch::Tensor attention(const torch::Tensor& u, const std::string& path) const {
    const int64_t S = u.size(1);
    const torch::Tensor query = linear(u, path + ".query");
    const torch::Tensor key_value = linear(u, path + ".key_value");
    const torch::Tensor later = torch::ones({S, S}, torch::kBool).triu(1);
    std::vector<torch::Tensor> heads;
    for (int64_t head = 0; head < 4; ++head) {  // heads 0 and 1 read group 0, 2 and 3 group 1
      const torch::Tensor q = turned(query.narrow(2, head * 2, 2));
      const torch::Tensor k = turned(key_value.narrow(2, head / 2 * 2, 2));
      const torch::Tensor v = key_value.narrow(2, 4 + head / 2 * 2, 2);
      const torch::Tensor logits = q.matmul(k.transpose(1, 2)) / std::sqrt(2.0);
      heads.push_back(logits.masked_fill(later, -1e300).softmax(2).matmul(v));
    }
    return linear(torch::cat(heads, 2), path + ".proj");
  }
  std::map<std::string, torch::Tensor> tensors_;
};

TEST_F(HspmnModel, IsTheSpecificationsEquations) {
  const torch::NoGradGuard no_grad;
  const auto model = make(tiny_hspmn());
  for (const Parameter& buffer : buffers_of(*model)) buffer.tensor.fill_(0.1);
  const torch::Tensor token = some_tokens(3, 7);
  const ModelOutput output = run(*model, token, some_step(3, false));
  EXPECT_LT(apart(output.token_bSD, PlainHspmn(*model).features(token, 0.1)), 1e-13);
  ASSERT_EQ(output.is_open_bS.size(), 2u);
  const int64_t open = output.is_open_bS[1].sum().item<int64_t>();
  EXPECT_GT(open, 6);  // some beside the anchors, not all
  EXPECT_LT(open, 21);
}

/// Equal bits, but with tiny experts: BLAS rounds a row of small matrices by how many rows are
/// multiplied, and later tokens change how many go to the same expert.
void expect_same(const std::string& model, const torch::Tensor& after,
                 const torch::Tensor& before) {
  if (model == "Experts") {
    EXPECT_LT(apart(after, before), 1e-14);
  } else {
    EXPECT_TRUE(after.equal(before)) << apart(after, before);
  }
}

TEST_F(HspmnModel, NoTokenSeesALaterOne) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, recipe] : kModels) {
    SCOPED_TRACE(name);
    const auto model = make(recipe);
    const torch::Tensor token = some_tokens(4, 7);
    const torch::Tensor before = features(*model, token);
    for (int64_t first = 1; first < 7; ++first) {
      torch::Tensor other = token.clone();
      other[1].narrow(0, first, 7 - first).add_(5).remainder_(11);
      const torch::Tensor after = features(*model, other);
      expect_same(name, after[1].narrow(0, 0, first), before[1].narrow(0, 0, first));
      EXPECT_GT(apart(before[1][first], after[1][first]), 1e-6);
      expect_same(name, after[0], before[0]);
    }
  }
}

// As wide as to be multiplied in the libraries' own way for large matrices, with experts too.
TEST_F(HspmnModel, NoTokenSeesALaterOneInLargerShapes) {
  const torch::NoGradGuard no_grad;
  const std::string sizes =
      "model: {backbone: hspmn, width: 64, depth: 2, heads: 4, kv_heads: 1, hidden: 160, context: "
      "300";
  const std::string experts =
      ", sparse_blocks: {from: 0, every: 1}, moe: {router: {name: top_k, k: 1, noise: none}, "
      "experts: {kind: gated, count: 4, hidden: 160}}";
  for (const torch::Dtype dtype : {torch::kFloat64, torch::kFloat32}) {
    for (const auto& [name, more] :
         std::map<std::string, std::string>{{"Dense", ""}, {"Experts", experts}}) {
      SCOPED_TRACE(name);
      const auto model = make(sizes + more + "}", dtype);
      const torch::Tensor token = some_tokens(3, 300);
      const torch::Tensor before = features(*model, token)[1];
      for (const int64_t first : {1, 100, 293, 299}) {
        torch::Tensor other = token.clone();
        other[1].narrow(0, first, 300 - first).add_(5).remainder_(11);
        const torch::Tensor after = features(*model, other)[1];
        const torch::Tensor same = before.narrow(0, 0, first);
        EXPECT_TRUE(after.narrow(0, 0, first).equal(same)) << "from token " << first;
        EXPECT_FALSE(after[first].equal(before[first]));
      }
    }
  }
}

TEST_F(HspmnModel, NoTokenSeesALaterOneInTraining) {
  for (const std::string name : {"Threshold", "Random", "Capacity", "Experts", "Mixed"}) {
    SCOPED_TRACE(name);
    const auto model = make(kModels.at(name));
    const torch::Tensor token = some_tokens(4, 7);
    const torch::Tensor before = features(*model, token, /*training=*/true)[1];
    for (int64_t first = 1; first < 7; ++first) {
      torch::Tensor other = token.clone();
      other[1].narrow(0, first, 7 - first).add_(5).remainder_(11);
      const torch::Tensor after = features(*model, other, /*training=*/true)[1];
      expect_same(name, after.narrow(0, 0, first), before.narrow(0, 0, first));
    }
  }
}

TEST_F(HspmnModel, DecodesWhatItComputesAtOnce) {
  for (const torch::Dtype dtype : {torch::kFloat64, torch::kFloat32}) {
    const double tolerance = dtype == torch::kFloat64 ? 1e-12 : 1e-5;
    for (const auto& [name, recipe] : kModels) {
      SCOPED_TRACE(name);
      const auto model = make(recipe, dtype);
      const torch::Tensor token = some_tokens(3, 9);
      const torch::Tensor expected = features(*model, token).detach();
      for (const std::vector<int64_t>& cuts :
           {std::vector<int64_t>(9, 1), {9}, {4, 1, 4}, {2, 3, 4}}) {
        KeyValueCache cache = model->make_cache(3, 9);
        int64_t first = 0;
        for (const int64_t count : cuts) {
          const torch::Tensor y =
              model->decode({token.narrow(1, first, count)}, cache, some_step(3, true));
          EXPECT_LT(apart(y, expected.narrow(1, first, count)), tolerance);
          first += count;
        }
        EXPECT_EQ(cache.length_b, (std::vector<int64_t>{9, 9, 9}));
      }
    }
  }
}

TEST_F(HspmnModel, DecodesSequencesOfSeveralLengths) {
  for (const auto& [name, recipe] : kModels) {
    SCOPED_TRACE(name);
    const auto model = make(recipe);
    const torch::Tensor token = some_tokens(3, 9);
    const torch::Tensor expected = features(*model, token).detach();
    KeyValueCache cache = model->make_cache(3, 9);
    model->decode({token.narrow(1, 0, 5), {1, 5, 3}}, cache, some_step(3, false));
    for (const std::vector<int64_t>& counts :
         {std::vector<int64_t>{2, 1, 0}, {1, 2, 2}, {1, 0, 1}}) {
      torch::Tensor next = torch::zeros({3, 2}, torch::kInt64);
      const std::vector<int64_t> begin = cache.length_b;
      for (size_t b = 0; b < 3; ++b) {
        const auto row = static_cast<int64_t>(b);
        next[row].narrow(0, 0, counts[b]).copy_(token[row].narrow(0, begin[b], counts[b]));
      }
      const torch::Tensor y = model->decode({next, counts}, cache, some_step(3, false));
      for (size_t b = 0; b < 3; ++b) {
        const auto row = static_cast<int64_t>(b);
        EXPECT_LT(
            apart(y[row].narrow(0, 0, counts[b]), expected[row].narrow(0, begin[b], counts[b])),
            1e-12);
      }
    }
    EXPECT_EQ(cache.length_b, (std::vector<int64_t>{5, 8, 6}));
  }
}

TEST_F(HspmnModel, TakesNoSequences) {
  for (const auto& [name, recipe] : kModels) {
    SCOPED_TRACE(name);
    const auto model = make(recipe);
    KeyValueCache cache = model->make_cache(0, 8);
    const torch::Tensor y = model->decode({some_tokens(0, 3)}, cache, some_step(0, false));
    EXPECT_EQ(y.sizes(), (at::IntArrayRef{0, 3, 8}));
    StepContext step = some_step(0, /*training=*/true);
    step.samples_in_step = step.samples_in_micro = 4;
    EXPECT_EQ(run(*model, some_tokens(0, 7), step).token_bSD.sizes(), (at::IntArrayRef{0, 7, 8}));
  }
}

TEST_F(HspmnModel, PaddingChangesNoFeatureBeforeIt) {
  const torch::NoGradGuard no_grad;
  for (const std::string more : {"", ", causal: false"}) {
    const auto model = make(tiny_hspmn(more));
    ModelInput padded, alone;
    padded.token_bS = some_tokens(2, 7);
    padded.length_b = torch::tensor({4, 7}, torch::kInt64);
    alone.token_bS = padded.token_bS.narrow(0, 0, 1).narrow(1, 0, 4);
    const torch::Tensor y = model->forward(padded, some_step(2, false)).token_bSD[0];
    const torch::Tensor expected = model->forward(alone, some_step(1, false)).token_bSD[0];
    EXPECT_LT(apart(y.narrow(0, 0, 4), expected), 1e-13);
  }
}

TEST_F(HspmnModel, RecomputesTheSameGradients) {
  for (const auto& [name, recipe] : kModels) {
    SCOPED_TRACE(name);
    std::vector<torch::Tensor> first;
    for (const bool recomputes : {false, true}) {
      const auto model = make(recipe, torch::kFloat64, recomputes);
      const ModelOutput output = run(*model, some_tokens(3, 7), some_step(3, true));
      add_loss(output.token_bSD.square().sum(), output.auxiliary_loss).backward();
      std::vector<torch::Tensor> gradients;
      for (const Parameter& parameter : parameters_of(*model)) {
        gradients.push_back(parameter.tensor.grad());
      }
      if (!recomputes) {
        first = gradients;
        continue;
      }
      for (size_t i = 0; i < first.size(); ++i) {
        EXPECT_EQ(first[i].defined(), gradients[i].defined());
        if (!first[i].defined()) continue;
        EXPECT_TRUE(first[i].equal(gradients[i]));
      }
    }
  }
}

// The task's gradient reaches the gate through the attention of the tokens that are computed: the
// open ones, or with exploration of all tokens the closed ones, too, whose weight is 0.
TEST_F(HspmnModel, TheTaskTrainsTheGateAsSpecified) {
  for (const bool explores : {false, true}) {
    SCOPED_TRACE(explores);
    const auto model = make(tiny_hspmn(
        "", std::string(", rate_weight: 0, entropy_weight: 0, noise: none, explore_fraction: ") +
                (explores ? "1" : "0")));
    for (const Parameter& buffer : buffers_of(*model)) buffer.tensor.fill_(0.1);
    const torch::Tensor token = some_tokens(3, 7);
    features(*model, token, /*training=*/true).square().sum().backward();
    std::map<std::string, torch::Tensor> gradients;
    for (const Parameter& parameter : parameters_of(*model)) {
      gradients[parameter.name] = parameter.tensor.grad().clone();
      parameter.tensor.mutable_grad().reset();
    }
    const auto straight_through_soft = [&](const torch::Tensor& is_open, const torch::Tensor& l) {
      const torch::Tensor open = is_open.to(torch::kFloat64), soft = l.sigmoid();
      const torch::Tensor change = soft - soft.detach();
      return open + (explores ? change : open * change);
    };
    PlainHspmn(*model).features(token, 0.1, straight_through_soft).square().sum().backward();
    for (const Parameter& parameter : parameters_of(*model)) {
      EXPECT_LT(apart(gradients.at(parameter.name), parameter.tensor.grad()), 1e-12)
          << parameter.name;
    }
    EXPECT_GT(gradients.at("blocks.1.gate.weight").abs().max().item<double>(), 1e-6);
  }
}

// Not only near: what attends while decoding is what attends in the whole pass.
TEST_F(HspmnModel, DecodesWithTheSameTokensAttending) {
  for (const torch::Dtype dtype : {torch::kFloat64, torch::kFloat32, torch::kBFloat16}) {
    for (const std::string name : {"Threshold", "Predictor", "Random", "Capacity"}) {
      SCOPED_TRACE(name);
      const auto model = make(kModels.at(name), dtype);
      const torch::Tensor token = some_tokens(3, 9);
      const ModelOutput whole = run(*model, token, some_step(3, false));
      KeyValueCache cache = model->make_cache(3, 9);
      for (int64_t i = 0; i < 9; ++i) {
        const torch::Tensor y = model->decode({token.narrow(1, i, 1)}, cache, some_step(3, false));
        const double most = dtype == torch::kBFloat16 ? 0.05 : 1e-5;
        EXPECT_LT(apart(y[0][0], whole.token_bSD[0][i]), most);
        const torch::Tensor beside = torch::arange(i + 1, torch::kInt64).remainder(4) != 0;
        for (size_t layer = 0; layer < 2; ++layer) {
          const torch::Tensor expected =
              (whole.is_open_bS[layer].narrow(1, 0, i + 1) & beside).sum(1);
          const torch::Tensor attended = cache.layers[layer].gate_b2.select(1, 1);
          if (name == "Capacity") {  // counts those without room, too
            EXPECT_TRUE((attended >= expected).all().item<bool>());
          } else {
            EXPECT_TRUE(attended.equal(expected)) << attended << expected;
          }
        }
      }
    }
  }
}

TEST_F(HspmnModel, LongSequencesPassTheMlpInParts) {
  const torch::NoGradGuard no_grad;
  const std::string recipe =
      "model: {backbone: hspmn, width: 4, depth: 1, heads: 2, kv_heads: 1, hidden: 5, context: "
      "20000, gate: {anchor_every: 500, rate: 0.01}}";
  const auto model = make(recipe);
  for (const Parameter& buffer : buffers_of(*model)) buffer.tensor.fill_(0.1);
  const torch::Tensor token = some_tokens(2, 9001);
  const torch::Tensor parts = features(*model, token);
  const at::AutoGradMode with_gradients(true);
  EXPECT_LT(apart(parts, features(*model, token)), 1e-13);
}

TEST(Hspmn, RefusesByName) {
  const auto mistake = [](const std::string& keys) {
    return testing::config_error_of([&] { hspmn_on_meta(keys); });
  };
  EXPECT_THAT(mistake(", kv_heads: 3"), HasSubstr("model.kv_heads: 3 do not divide 16 heads"));
  EXPECT_THAT(mistake(", heads: 3"), HasSubstr("model.heads"));
  for (const std::string rate : {"0", "1.5", "-0.1"}) {
    EXPECT_THAT(mistake(", gate: {rate: " + rate + "}"), HasSubstr("model.gate.rate"));
  }
  const std::string top_k = mistake(", gate: {select: topk, capacity: 2}");
  EXPECT_THAT(top_k, HasSubstr("model.gate.select: topk compares"));
  EXPECT_THAT(top_k, HasSubstr("model.gate.capacity: limits how many"));
  EXPECT_THAT(mistake(", gate: {capacity: 0.05}"), HasSubstr("model.gate.capacity: 41 of 4096"));
  EXPECT_THAT(mistake(", gate: {rate: 0.9}"), HasSubstr("model.gate.first_rate"));
  EXPECT_THAT(mistake(", context: 512"), HasSubstr("model.context: 512 is below the 4096 tokens"));
  EXPECT_THAT(mistake(", dense_blocks: [16]"), HasSubstr("model.dense_blocks"));
  EXPECT_THAT(mistake(", causal: false, contextual: dense"), HasSubstr("model.causal"));
  EXPECT_EQ(mistake(", gate: {capacity: 1.25}"), "no error");
}

}  // namespace
}  // namespace shoal
