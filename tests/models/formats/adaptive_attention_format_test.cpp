#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "models/backbones/adaptive_attention.h"
#include "models/formats/weight_format.h"
#include "models/tasks/denoise_options.h"
#include "moe/routers/mlp.h"
#include "runtime/base/error.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const DataShape kImages{
    .source = "test", .image = ImageShape{3, 32, 32}, .has_unit_pixels = true, .classes = 10};

std::shared_ptr<WeightFormat> make_format() {
  return Registry<WeightFormat>::create(Choice<WeightFormat>("adaptive_attention"), {});
}

/// The mistakes that keep a model from being exported, "" if there are none.
std::string refused(const AdaptiveAttention::Options& model, const DenoiseOptions& task = {}) {
  const Choice<Backbone> backbone{"adaptive_attention", model};
  const Choice<Task> choice{"denoise", task};
  Mistakes mistakes;
  make_format()->check(backbone, mistakes);
  try {
    mistakes.throw_if_any("model:");
    make_format()->check_export({backbone, choice, kImages}, mistakes);
    mistakes.throw_if_any("export:");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kMismatch);
    return error.what();
  }
  return "";
}

AdaptiveAttention::Options with_router(const ScoreOptions& scores,
                                       std::optional<int64_t> hidden = std::nullopt) {
  MlpRouter::Options router;
  router.hidden = hidden;
  router.scores = scores;
  AdaptiveAttention::Options model;
  model.attention->router = Choice<Router>("mlp", router);
  return model;
}

TEST(AdaptiveAttentionFormat, NamesAreThoseOfThePublicProgram) {
  AdaptiveAttention::Options model;
  model.depth = 1;
  model.attention->experts.resize(1);
  std::map<std::string, std::string> names;
  for (const WeightName& name : make_format()->names(Choice<Backbone>("adaptive_attention", model),
                                                     Choice<Task>("denoise"), kImages)) {
    names[name.theirs] = name.ours;
    EXPECT_EQ(name.is_transposed,
              name.theirs.find("W_") != name.theirs.npos && name.theirs.ends_with("weight"))
        << name.theirs;
  }
  std::map<std::string, std::string> expected{{"pos_embed", "backbone.positions"}};
  for (const auto& [theirs, ours] :
       {std::pair{"patch_embed", "stem"}, std::pair{"blocks.0.norm1", "blocks.0.attention_norm"},
        std::pair{"blocks.0.attn.router.routing_net.0", "blocks.0.attention.router.fc1"},
        std::pair{"blocks.0.attn.router.routing_net.2", "blocks.0.attention.router.fc2"},
        std::pair{"blocks.0.attn.experts.0.W_q", "blocks.0.attention.experts.0.query"},
        std::pair{"blocks.0.attn.experts.0.W_k", "blocks.0.attention.experts.0.key"},
        std::pair{"blocks.0.attn.experts.0.W_v", "blocks.0.attention.experts.0.value"},
        std::pair{"blocks.0.attn.experts.0.W_out", "blocks.0.attention.experts.0.out"},
        std::pair{"blocks.0.attn.merge_proj", "blocks.0.merge"},
        std::pair{"blocks.0.norm2", "blocks.0.mlp_norm"},
        std::pair{"blocks.0.ffn.0", "blocks.0.mlp.fc1"},
        std::pair{"blocks.0.ffn.2", "blocks.0.mlp.fc2"}}) {
    for (const std::string part : {".weight", ".bias"}) {
      expected[theirs + part] = "backbone." + (ours + part);
    }
  }
  expected["patch_unembed.weight"] = "head.weight";
  expected["patch_unembed.bias"] = "head.bias";
  EXPECT_EQ(names, expected);
}

TEST(AdaptiveAttentionFormat, RefusesModelsThatItHasNoLayoutFor) {
  AdaptiveAttention::Options model;
  EXPECT_EQ(refused(model), "");
  model.attention->mixing = Mixing::kHardSharedKv;
  model.final_norm = true;
  EXPECT_THAT(refused(model), AllOf(HasSubstr("model.attention.mixing: hard_shared_kv"),
                                    HasSubstr("model.final_norm")));
  model = {};
  model.attention.reset();
  EXPECT_THAT(refused(model), HasSubstr("model.attention: null"));
  model = {};
  model.attention->router = Choice<Router>("top_k");
  EXPECT_THAT(refused(model), HasSubstr("model.attention.router.name: top_k"));
  model = {};
  model.depth = 0;
  EXPECT_THAT(refused(model), HasSubstr("model.depth"));
  EXPECT_THAT(refused(with_router({.k = 1, .noise = RouterNoise::kLearned})),
              HasSubstr("model.attention.router.noise: learned"));
  EXPECT_THAT(refused(with_router({.k = 1, .noise = RouterNoise::kNone, .bias = {.rate = 0.1}})),
              HasSubstr("model.attention.router.bias.rate"));
}

TEST(AdaptiveAttentionFormat, DoesNotExportWhatThePublicProgramWouldComputeOtherwise) {
  AdaptiveAttention::Options model;
  model.attention->mixing = Mixing::kHard;
  model.attention->experts[1].candidates.from = CandidateKind::kWindow;
  model.hidden = 100;
  DenoiseOptions residual;
  residual.residual = true;
  EXPECT_THAT(refused(model, residual),
              AllOf(HasSubstr("model.attention.mixing: hard: "),
                    HasSubstr("model.attention.experts[1].candidates"),
                    HasSubstr("model.hidden: 100, the published program builds 256"),
                    HasSubstr("task.residual")));
  EXPECT_THAT(refused(with_router({.k = 1}, 32)),
              HasSubstr("model.attention.router.hidden: 32, the published program builds 64"));
  // Noise while training, and choices, have no part in soft mixing as it is evaluated.
  EXPECT_EQ(refused(with_router({.k = 2, .noise = RouterNoise::kGaussian})), "");
}

}  // namespace
}  // namespace shoal
