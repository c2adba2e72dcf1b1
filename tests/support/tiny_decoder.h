#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "models/causal_backbone.h"
#include "tests/support/build_model.h"
#include "tests/support/model_fill.h"
#include "tests/support/ranks.h"
#include "tests/support/some_batch.h"

// b sequences  S tokens
namespace shoal::testing {

inline const DataShape kTinyText{
    .source = "test", .sequence = 7, .vocabulary = 11, .token_labels = 7};
/// Context of a decoder for kTinyText.
inline constexpr int64_t kTinyContext = 9;

/// Two blocks with two heads each.
inline std::string tiny_gpt2(const std::string& more = "") {
  return "model: {backbone: gpt2, width: 8, depth: 2, heads: 2, hidden: 10, context: 9" + more +
         "}";
}

/// Ways of building a decoder.
inline const std::map<std::string, std::string> kTinyDecoders{
    {"Dense", ""},
    {"Llama", ", kv_heads: 1, position: rope, rope_base: 50, norm: rms, mlp: swiglu, bias: false"},
    {"Scaled", ", scale_attn_by_inverse_layer_idx: true, gelu: erf, pad_vocabulary: 8"},
    {"Experts",
     ", moe: {router: {name: top_k, k: 2, noise: none}, experts: {count: 3, hidden: 5}, losses: "
     "[{name: importance, weight: 0.1}]}"},
    {"ExpertsInOrder",
     ", sparse_blocks: {from: 0, every: 1}, moe: {router: {name: top_k, k: 1, noise: none}, "
     "capacity: {mode: capped, factor: 1, order: position}, experts: {kind: gated, count: 3, "
     "hidden: 5}, shared: {count: 1, hidden: 4}}"}};

/// Token ids without a pattern.
inline torch::Tensor some_tokens(int64_t b, int64_t S, int64_t vocabulary = 11) {
  const torch::Tensor place = torch::arange(b * S, torch::kInt64);
  return (place * place * 7 + place * 3).remainder(vocabulary).view({b, S});
}

/// Decoders on one rank with filled parameters, in float64 unless told.
class TinyDecoder : public ::testing::Test {
 protected:
  std::shared_ptr<CausalBackbone> make(const std::string& recipe,
                                       torch::Dtype compute = torch::kFloat64,
                                       bool recomputes = false,
                                       Features features = Features::kTokens) {
    ModelContext build{
        {&grid_, torch::TensorOptions().dtype(compute == torch::kFloat64 ? torch::kFloat64
                                                                         : torch::kFloat32)}};
    build.compute_dtype = compute;
    build.recomputes = recomputes;
    auto model = std::dynamic_pointer_cast<CausalBackbone>(
        build_backbone(recipe, kTinyText, build, features));
    fill_parameters(*model);
    initialise(buffers_of(*model), /*seed=*/1);
    return model;
  }
  static ModelOutput run(CausalBackbone& model, const torch::Tensor& token_bS,
                         const StepContext& step) {
    ModelInput input;
    input.token_bS = token_bS;
    return model.forward(input, step);
  }
  static torch::Tensor features(CausalBackbone& model, const torch::Tensor& token_bS,
                                bool training = false) {
    return run(model, token_bS, some_step(token_bS.size(0), training)).token_bSD;
  }

 private:
  RankGrid grid_ = self_grid();
};

}  // namespace shoal::testing
