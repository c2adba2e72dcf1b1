#include "models/backbones/gpt2.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/support/config_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/tiny_decoder.h"

// b sequences  S tokens  C width
namespace shoal {
namespace {

using testing::apart;
using testing::build_backbone;
using ::testing::HasSubstr;
using testing::kTinyDecoders;
using testing::kTinyText;
using testing::meta_context;
using testing::some_step;
using testing::some_tokens;
using testing::tiny_gpt2;

const DataShape kText{
    .source = "text", .sequence = 1024, .vocabulary = 50257, .token_labels = 1024};
const std::string kMedium = ", width: 1024, depth: 24, heads: 16";

std::shared_ptr<Backbone> on_meta(const std::string& keys, const DataShape& data = kText) {
  return build_backbone("model: {backbone: gpt2" + keys + "}", data, meta_context());
}

TEST(Gpt2, HasThePublishedParametersExactly) {
  const auto count = [](const std::string& keys) {
    return testing::count_parameters(*on_meta(keys));
  };
  EXPECT_EQ(count(""), 124439808);
  EXPECT_EQ(count(kMedium), 354823168);
  EXPECT_EQ(count(", pad_vocabulary: 128"), 124475904);
  EXPECT_EQ(count(kMedium + ", pad_vocabulary: 128"), 354871296);
}

// Llama 3 8B: 32 blocks, 128256 tokens, here without its head of its own.
TEST(Gpt2, HasTheParametersOfLaterDecodersExactly) {
  const auto model = on_meta(
      ", width: 4096, depth: 32, heads: 32, kv_heads: 8, hidden: 14336, position: rope, "
      "rope_base: 500000, norm: rms, mlp: swiglu, bias: false",
      {.source = "text", .sequence = 8192, .vocabulary = 128256});
  EXPECT_EQ(testing::count_parameters(*model), 8030261248 - int64_t{128256} * 4096);
}

TEST(Gpt2, PutsAutoInPlace) {
  const auto shape_of = [](const std::string& keys, const std::string& name) {
    for (const Parameter& parameter : parameters_of(*on_meta(keys))) {
      if (parameter.name == name) return parameter.tensor.sizes().vec();
    }
    return std::vector<int64_t>{};
  };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape_of("", "positions"), (Shape{1024, 768}));
  EXPECT_EQ(shape_of(", context: 2000", "positions"), (Shape{2000, 768}));
  EXPECT_EQ(shape_of("", "blocks.0.mlp.fc1.weight"), (Shape{3072, 768}));
  EXPECT_EQ(shape_of(", mlp: swiglu", "blocks.0.mlp.fc1.weight"), (Shape{2048, 768}));
  EXPECT_EQ(shape_of(", mlp: swiglu, width: 120, heads: 2", "blocks.0.mlp.gate.weight"),
            (Shape{320, 120}));
  EXPECT_EQ(shape_of(", kv_heads: 4", "blocks.0.attention.qkv.weight"), (Shape{1280, 768}));
}

void expect_first_values(const std::string& keys, double std) {
  const std::string experts =
      ", moe: {router: {name: top_k, k: 1}, experts: {kind: gated, bias: true}, shared: {count: "
      "1}}";
  for (const Parameter& parameter : parameters_of(*on_meta(keys + experts))) {
    const std::string& name = parameter.name;
    if (name.find("router") != std::string::npos) continue;
    const bool ends_branch = name.ends_with("proj.weight") || name.ends_with("fc2.weight");
    if (name.ends_with("bias")) {
      EXPECT_EQ(parameter.init.kind, Init::Kind::kConstant) << name;
      EXPECT_EQ(parameter.init.scale, 0.0) << name;
    } else if (name.ends_with("norm.weight")) {
      EXPECT_EQ(parameter.init.kind, Init::Kind::kConstant) << name;
      EXPECT_EQ(parameter.init.scale, 1.0) << name;
    } else {
      EXPECT_EQ(parameter.init.kind, Init::Kind::kNormal) << name;
      EXPECT_DOUBLE_EQ(parameter.init.scale, ends_branch ? std / std::sqrt(24.0) : std) << name;
    }
  }
}

TEST(Gpt2, StartsFromTheFirstValuesOfGpt2) { expect_first_values("", 0.02); }

TEST(Gpt2, StartsFromWiderFirstValues) { expect_first_values(", init_std: 0.06", 0.06); }

class Gpt2Model : public testing::TinyDecoder {};

/// The features by the published equations as they stand.
class PlainGpt2 {
 public:
  explicit PlainGpt2(const torch::nn::Module& model) {
    for (const Parameter& parameter : parameters_of(model)) {
      tensors_.insert_or_assign(parameter.name, parameter.tensor);
    }
  }
  torch::Tensor features(const torch::Tensor& token_bS) const {
    torch::Tensor x =
        at("tokens").index({token_bS}) + at("positions").narrow(0, 0, token_bS.size(1));
    for (const std::string block : {"blocks.0.", "blocks.1."}) {
      x = x + attention(norm(x, block + "attention_norm"), block + "attention");
      const torch::Tensor hidden =
          at::gelu(linear(norm(x, block + "mlp_norm"), block + "mlp.fc1"), /*approximate=*/"tanh");
      x = x + linear(hidden, block + "mlp.fc2");
    }
    return norm(x, "norm");
  }

 private:
  const torch::Tensor& at(const std::string& name) const { return tensors_.at(name); }
  torch::Tensor norm(const torch::Tensor& x, const std::string& path) const {
    return at::layer_norm(x, {8}, at(path + ".weight"), at(path + ".bias"), 1e-5);
  }
  torch::Tensor linear(const torch::Tensor& x, const std::string& path) const {
    return at::linear(x, at(path + ".weight"), at(path + ".bias"));
  }
  torch::Tensor attention(const torch::Tensor& x, const std::string& path) const {
    const int64_t S = x.size(1);
    const torch::Tensor qkv = linear(x, path + ".qkv");
    const torch::Tensor later = torch::ones({S, S}, torch::kBool).triu(1);
    std::vector<torch::Tensor> heads;
    for (int64_t head = 0; head < 2; ++head) {
      const auto part = [&](int64_t which) { return qkv.narrow(2, which * 8 + head * 4, 4); };
      const torch::Tensor logits = part(0).matmul(part(1).transpose(1, 2)) / 2.0;
      heads.push_back(logits.masked_fill(later, -1e300).softmax(2).matmul(part(2)));
    }
    return linear(torch::cat(heads, 2), path + ".proj");
  }
  std::map<std::string, torch::Tensor> tensors_;
};

TEST_F(Gpt2Model, IsThePublishedEquations) {
  const torch::NoGradGuard no_grad;
  const auto model = make(tiny_gpt2());
  const torch::Tensor token = some_tokens(3, 7);
  EXPECT_LT(apart(features(*model, token), PlainGpt2(*model).features(token)), 1e-13);
}

TEST_F(Gpt2Model, DividesLogitsByTheBlocksNumberIfTold) {
  const torch::NoGradGuard no_grad;
  const auto model = make(tiny_gpt2());
  const auto scaled = make(tiny_gpt2(", scale_attn_by_inverse_layer_idx: true"));
  const torch::Tensor token = some_tokens(3, 7);
  EXPECT_GT(apart(features(*model, token), features(*scaled, token)), 1e-4);
  for (const Parameter& parameter : parameters_of(*model)) {  // queries of block 1 by half
    if (parameter.name.find("blocks.1.attention.qkv") != std::string::npos) {
      parameter.tensor.narrow(0, 0, 8).mul_(0.5);
    }
  }
  EXPECT_LT(apart(features(*model, token), features(*scaled, token)), 1e-13);
}

TEST_F(Gpt2Model, NoTokenSeesALaterOne) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, keys] : kTinyDecoders) {
    SCOPED_TRACE(name);
    const auto model = make(tiny_gpt2(keys));
    const torch::Tensor token = some_tokens(4, 7);
    for (const bool training : {false, true}) {
      const torch::Tensor before = features(*model, token, training)[1];
      for (int64_t first = 1; first < 7; ++first) {
        torch::Tensor other = token.clone();
        other[1].narrow(0, first, 7 - first).add_(5).remainder_(11);
        const torch::Tensor after = features(*model, other, training)[1];
        EXPECT_LT(apart(before.narrow(0, 0, first), after.narrow(0, 0, first)), 1e-13);
        EXPECT_GT(apart(before[first], after[first]), 1e-6);
      }
    }
  }
}

/// Features of a sample each; tokens behind its length are padding.
torch::Tensor pooled_features(Backbone& model, const torch::Tensor& token_bS,
                              const std::vector<int64_t>& length) {
  const torch::NoGradGuard no_grad;
  ModelInput input;
  input.token_bS = token_bS;
  input.length_b = torch::tensor(length, torch::kInt64);
  return model.forward(input, some_step(token_bS.size(0), false)).pooled_bD;
}

TEST_F(Gpt2Model, PaddingChangesNoSample) {
  const std::vector<int64_t> length{3, 7, 5};
  for (const auto& [name, keys] : kTinyDecoders) {
    SCOPED_TRACE(name);
    for (const Features features : {Features::kPooled, Features::kLast}) {
      for (const torch::Dtype dtype : {torch::kFloat64, torch::kFloat32, torch::kBFloat16}) {
        const auto model = make(tiny_gpt2(keys), dtype, false, features);
        const torch::Tensor token = some_tokens(3, 7);
        torch::Tensor other = token.clone();
        other[0].narrow(0, 3, 4).fill_(0);
        other[2].narrow(0, 5, 2).fill_(10);
        const torch::Tensor y = pooled_features(*model, token, length);
        EXPECT_TRUE(y.equal(pooled_features(*model, other, length)));
        if (dtype != torch::kFloat64) continue;
        for (int64_t b = 0; b < 3; ++b) {  // alone; products of other shapes may round otherwise
          const int64_t own = length[static_cast<size_t>(b)];
          const torch::Tensor alone =
              pooled_features(*model, token.narrow(0, b, 1).narrow(1, 0, own), {own});
          EXPECT_LT(apart(y[b], alone[0]), 1e-13);
        }
      }
    }
  }
}

TEST_F(Gpt2Model, DecodesWhatItComputesAtOnce) {
  for (const auto& [name, keys] : kTinyDecoders) {
    SCOPED_TRACE(name);
    const auto model = make(tiny_gpt2(keys));
    const torch::Tensor token = some_tokens(3, 7);
    const torch::Tensor expected = features(*model, token).detach();
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1}, {7}, {4, 1, 1, 1}, {2, 3, 2}}) {
      KeyValueCache cache = model->make_cache(3, 8);
      int64_t first = 0;
      for (const int64_t count : cuts) {
        const torch::Tensor y =
            model->decode({token.narrow(1, first, count)}, cache, some_step(3, true));
        EXPECT_LT(apart(y, expected.narrow(1, first, count)), 1e-12);
        EXPECT_FALSE(y.requires_grad());
        first += count;
      }
      EXPECT_EQ(cache.length_b, (std::vector<int64_t>{7, 7, 7}));
    }
  }
}

// Prompts are padded on the right for the prefill.
TEST_F(Gpt2Model, DecodesSequencesOfSeveralLengths) {
  for (const auto& [name, keys] : kTinyDecoders) {
    SCOPED_TRACE(name);
    const auto model = make(tiny_gpt2(keys));
    const torch::Tensor token = some_tokens(3, 9);
    const torch::Tensor expected = features(*model, token).detach();
    KeyValueCache cache = model->make_cache(3, 9);
    model->decode({token.narrow(1, 0, 5), {2, 5, 3}}, cache, some_step(3, false));
    for (int64_t i = 0; i < 2; ++i) {
      torch::Tensor next = torch::empty({3, 2}, torch::kInt64);
      const std::vector<int64_t> begin = cache.length_b;
      for (int64_t b = 0; b < 3; ++b) {
        next[b].copy_(token[b].narrow(0, begin[static_cast<size_t>(b)], 2));
      }
      const torch::Tensor y = model->decode({next}, cache, some_step(3, false));
      for (int64_t b = 0; b < 3; ++b) {
        EXPECT_LT(apart(y[b], expected[b].narrow(0, begin[static_cast<size_t>(b)], 2)), 1e-12);
      }
    }
    EXPECT_EQ(cache.length_b, (std::vector<int64_t>{6, 9, 7}));
  }
}

TEST_F(Gpt2Model, DecodesNoSequences) {
  const auto model = make(tiny_gpt2(kTinyDecoders.at("Experts")));
  KeyValueCache cache = model->make_cache(0, 8);
  const torch::Tensor y = model->decode({some_tokens(0, 3)}, cache, some_step(0, false));
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{0, 3, 8}));
}

TEST_F(Gpt2Model, DecodesWithoutBlocks) {
  std::string recipe = tiny_gpt2();
  recipe.replace(recipe.find("depth: 2"), 8, "depth: 0");
  const auto model = make(recipe);
  KeyValueCache cache = model->make_cache(2, 8);
  const torch::Tensor tokens = some_tokens(2, 4);
  const torch::Tensor y = model->decode({tokens}, cache, some_step(2, false));
  EXPECT_TRUE(y.equal(features(*model, tokens)));
}

TEST_F(Gpt2Model, RefusesMoreTokensThanThereIsRoomFor) {
  const auto model = make(tiny_gpt2());
  EXPECT_THROW(features(*model, some_tokens(1, 10)), c10::Error);
  EXPECT_THROW(model->make_cache(1, 10), c10::Error);
  KeyValueCache cache = model->make_cache(1, 4);
  EXPECT_THROW(model->decode({some_tokens(1, 5)}, cache, some_step(1, false)), c10::Error);
}

TEST_F(Gpt2Model, GradientsAreThoseOfFiniteDifferences) {
  const auto error_of = [&](const std::string& keys) {
    const auto model = make(
        "model: {backbone: gpt2, width: 4, depth: 2, heads: 2, hidden: 3, "
        "context: 7" +
        keys + "}");
    const torch::Tensor token = some_tokens(2, 3);
    return testing::gradient_error([&] { return features(*model, token, true); },
                                   model->parameters());
  };
  EXPECT_LT(error_of(""), 1e-6);
  for (const auto& [name, keys] : kTinyDecoders) {
    EXPECT_LT(error_of(keys + ", dropout: 0.3"), 1e-6) << name;
  }
}

TEST_F(Gpt2Model, RecomputesTheSameBits) {
  std::map<std::string, std::string> decoders = kTinyDecoders;
  // Rows that end inside a cache line.
  decoders["WideExperts"] = ", moe: {router: {name: top_k, k: 2}, experts: {count: 5, hidden: 75}}";
  for (const auto& [name, keys] : decoders) {
    for (const torch::Dtype dtype : {torch::kFloat64, torch::kFloat32, torch::kBFloat16}) {
      const auto passed = [&](bool recomputes) {
        const auto model = make(tiny_gpt2(keys + ", dropout: 0.3"), dtype, recomputes);
        const ModelOutput output = run(*model, some_tokens(40, 7), some_step(40, true));
        torch::Tensor loss = output.token_bSD.square().cumsum(1).sum();
        if (output.auxiliary_loss.defined()) loss = loss + output.auxiliary_loss;
        loss.backward();
        std::vector<torch::Tensor> found{output.token_bSD.detach()};
        for (const torch::Tensor& weight : model->parameters()) found.push_back(weight.grad());
        return found;
      };
      const std::vector<torch::Tensor> kept = passed(false), again = passed(true);
      for (size_t i = 0; i < kept.size(); ++i) {
        EXPECT_TRUE(torch::equal(again[i], kept[i])) << name << ' ' << dtype << ' ' << i;
      }
    }
  }
}

TEST_F(Gpt2Model, DropsWhatTheSamplesPlaceInTheStreamSays) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, keys] : kTinyDecoders) {
    if (name.starts_with("Experts")) continue;  // their groups are whole in every cut
    const auto model = make(tiny_gpt2(keys + ", dropout: 0.5"));
    const torch::Tensor token = some_tokens(6, 7);
    const torch::Tensor whole = features(*model, token, true);
    EXPECT_GT(apart(whole, features(*model, token, false)), 1e-3);
    StepContext part = some_step(6, true);
    part.sample_b = part.sample_b.narrow(0, 4, 2);
    const torch::Tensor last = run(*model, token.narrow(0, 4, 2), part).token_bSD;
    EXPECT_LT(apart(last, whole.narrow(0, 4, 2)), 1e-12) << name;
    part.step = 1;
    const torch::Tensor next = run(*model, token.narrow(0, 4, 2), part).token_bSD;
    EXPECT_GT(apart(next, last), 1e-3);
  }
}

TEST_F(Gpt2Model, Bfloat16IsFloat32ToRounding) {
  for (const auto& [name, keys] : kTinyDecoders) {
    if (name.starts_with("Experts")) continue;  // a rounded score may choose another expert
    SCOPED_TRACE(name);
    const auto model = make(tiny_gpt2(keys)), narrow = make(tiny_gpt2(keys), torch::kBFloat16);
    const torch::Tensor token = some_tokens(3, 7);
    const torch::Tensor y = features(*narrow, token, true);
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    EXPECT_LT(testing::relative_error(y, features(*model, token, true)), 0.05);
    y.to(torch::kFloat32).square().sum().backward();
    for (const torch::Tensor& parameter : narrow->parameters()) {
      EXPECT_TRUE(parameter.grad().isfinite().all().item<bool>());
    }
  }
}

TEST_F(Gpt2Model, TakesNoSequences) {
  for (const auto& [name, keys] : kTinyDecoders) {
    const auto model = make(tiny_gpt2(keys + ", dropout: 0.5"));
    const ModelOutput output = run(*model, some_tokens(0, 7), some_step(0, true));
    EXPECT_EQ(output.token_bSD.sizes(), (at::IntArrayRef{0, 7, 8})) << name;
    output.token_bSD.sum().backward();
    // Ranks without sequences take part in the sums of gradients with zeros.
    for (const Parameter& parameter : parameters_of(*model)) {
      ASSERT_TRUE(parameter.tensor.grad().defined()) << name << ": " << parameter.name;
      EXPECT_EQ(parameter.tensor.grad().count_nonzero().item<int64_t>(), 0) << parameter.name;
    }
  }
}

std::string gpt2_error(const std::string& keys, const DataShape& data = kText) {
  return testing::config_error_of([&] { on_meta(keys, data); });
}

TEST(Gpt2, RefusesKeysThatContradictEachOther) {
  EXPECT_THAT(gpt2_error(", heads: 5"), HasSubstr("model.heads: 5 heads do not divide"));
  EXPECT_THAT(gpt2_error(", kv_heads: 5"), HasSubstr("model.kv_heads: 5 do not divide 12 heads"));
  EXPECT_THAT(gpt2_error(", position: rope, heads: 256"),
              HasSubstr("model.position: rope turns pairs of numbers, but heads are 3 wide"));
  EXPECT_THAT(gpt2_error(", rope_base: 100"), HasSubstr("model.rope_base: needs position: rope"));
  EXPECT_THAT(gpt2_error(", mlp: swiglu, gelu: erf"), HasSubstr("model.gelu: needs mlp: gelu"));
  EXPECT_THAT(gpt2_error(", context: 1000"),
              HasSubstr("model.context: 1000 is below the 1024 tokens of a sample"));
  EXPECT_THAT(gpt2_error(", dropout: 1"), HasSubstr("model.dropout: "));
  EXPECT_THAT(gpt2_error(", sparse_blocks: {to: 3}"), HasSubstr("needs moe or nexus"));
}

TEST(Gpt2, NeedsTokens) {
  EXPECT_EQ(gpt2_error("", {.source = "cifar", .image = ImageShape{3, 32, 32}, .classes = 10}),
            "model.backbone: gpt2 needs tokens, data.source cifar gives images of 3 x 32 x 32 and "
            "labels of 10 classes");
}

TEST(Gpt2, RefusesWhatLooksAhead) {
  EXPECT_THAT(gpt2_error(", nexus: {}"), HasSubstr("a causal model cannot use a Nexus layer"));
  EXPECT_THAT(gpt2_error(", moe: {router: {name: expert_choice}}"),
              HasSubstr("a causal model cannot use expert_choice"));
}

}  // namespace
}  // namespace shoal
